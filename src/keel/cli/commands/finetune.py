"""`keel finetune`: train a model for a task, from a pretrained model and labelled data."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import say

TASKS = "classify, regress, tag, answer, choose or translate; or a recipe with a task (a name or a YAML file)."

TaskName = Annotated[str, typer.Argument(metavar="TASK", help=TASKS)]
Train = Annotated[str, typer.Option(metavar="FILE", help="Labelled training data.")]
Dev = Annotated[
    str | None, typer.Option(metavar="FILE", help="Labelled development data; default: a tenth of --train.")
]
FreshTokenizer = Annotated[
    str | None, typer.Option(metavar="DIR", help="Train from scratch: MODEL is a recipe, DIR the tokenizer.")
]
Length = Annotated[int | None, typer.Option(min=8, metavar="N", help="Maximum tokens in a row.")]
Epochs = Annotated[float | None, typer.Option(metavar="N", help="Passes over the training data.")]
Patience = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="End after N evaluations (epochs) without a better score.")
]
Grid = Annotated[
    bool,
    typer.Option(
        "--grid", help="Search batch sizes 16 and 32 with half, once and twice the automatic rate; keep the best."
    ),
]
Tries = Annotated[
    list[str] | None, typer.Option("--try", metavar="KEY=V,V", help="Search these values of a recipe key; repeatable.")
]
Seeds = Annotated[
    int, typer.Option(min=1, metavar="N", help="Runs per setting, with different seeds; reports mean and deviation.")
]


def finetune(
    model: common.ModelFolder,
    task: TaskName,
    train: Train,
    out: common.Out,
    dev: Dev = None,
    tokenizer: FreshTokenizer = None,
    text: common.TextColumn = None,
    pair: common.PairColumn = None,
    label: common.LabelColumn = None,
    choices: common.ChoiceColumns = None,
    long: common.Long = None,
    length: Length = None,
    epochs: Epochs = None,
    patience: Patience = None,
    grid: Grid = False,
    tries: Tries = None,
    seeds: Seeds = 1,
    overrides: common.Overrides = None,
    strict: common.Strict = False,
    resume: common.Resume = False,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    track: common.Track = None,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Fine-tunes a model on labelled data. Ctrl-C saves a checkpoint and prints the command that continues."""
    changes: dict[str, Any] = {"data.text": text, "data.pair": pair, "data.label": label}
    changes |= {"data.choices": choices or None, "data.long.strategy": long, "data.length": length}
    changes |= {"training.epochs": epochs, "training.patience": patience}
    options = {
        "train": train,
        "dev": dev,
        "out": out,
        "tokenizer": tokenizer,
        "overrides": [*_as_overrides(changes), *(overrides or [])],
        "strict": strict,
        "resume": resume,
        "threads": threads,
        "device": device,
        "allow_pickle": allow_pickle,
        "report": None if quiet else say,
        "quiet": quiet,
        "track": track,
    }
    if grid or tries or seeds > 1:
        _search(model, task, grid, tries or [], seeds, options, as_json)
    else:
        _one_run(model, task, options, as_json)


def _as_overrides(changes: dict[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in changes.items() if value is not None]


def _one_run(model: str, task: str, options: dict[str, Any], as_json: bool) -> None:
    from keel.stages.finetune import finetune as run

    common.print_result(f"model {options['out']}", run(model, task, **options), as_json)


def _search(
    model: str, task: str, grid: bool, tries: list[str], seeds: int, options: dict[str, Any], as_json: bool
) -> None:
    from keel.comparing.grid import recommended, search

    how = {name: options[name] for name in ("tokenizer", "overrides", "allow_pickle")}
    wanted = recommended(model, task, **how) if grid else []
    result = search(model, task, tries=[*wanted, *tries], seeds=seeds, **options)
    if as_json:
        common.print_json(result)
        return
    columns = ("settings", "mean", "deviation", "learned_nothing", "seconds")
    rows = [[row[name] for name in columns] for row in result["settings"]]
    title = f"{result['primary_metric']} on the development data"
    common.print_table(title, columns, rows, right=range(1, len(columns)))
    best = {"best": result["best"]["settings"], "run": result["best"]["best_run"]}
    common.print_result(f"model {options['out']}", best, False)


COMMAND = common.Command(
    finetune,
    help="Fine-tune a model on labelled data.",
    order=100,
    examples=[
        "keel finetune my-model classify --train train.tsv --dev dev.tsv --out my-classifier",
        "keel finetune my-model classify --train train.csv --text title --label topic --out topics "
        "--set training.epochs=4",
        "keel finetune my-model tag --train train.conll --dev dev.conll --out my-tagger",
        "keel finetune my-model answer --train train.json --dev dev.json --out my-reader",
        "keel finetune my-model classify --train train.tsv --dev dev.tsv --out best --grid --seeds 3",
        "keel finetune transformer-mini translate --tokenizer tok --train a.en,a.de --dev b.en,b.de --out en-de",
    ],
)
