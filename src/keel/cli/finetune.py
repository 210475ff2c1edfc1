"""`keel finetune`: a pretrained model and labelled data become a model that does a task."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

EXAMPLE = common.example(
    "keel finetune my-model classify --train train.tsv --dev dev.tsv --out my-classifier",
    "keel finetune my-model classify --train train.csv --text title --label topic --out topics --set training.epochs=4",
    "keel finetune my-model tag --train train.conll --dev dev.conll --out my-tagger",
    "keel finetune my-model answer --train train.json --dev dev.json --out my-reader",
    "keel finetune my-model classify --train train.tsv --dev dev.tsv --out best --grid --seeds 3",
    "keel finetune transformer-mini translate --tokenizer tok --train a.en,a.de --dev b.en,b.de --out en-de",
)


def finetune(
    model: common.ModelFolder,
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="classify, regress, tag, answer, choose or translate; or a recipe (a name or a YAML file).",
        ),
    ],
    train: Annotated[str, typer.Option(metavar="FILE", help="Labelled data to learn from.")],
    out: common.Out,
    dev: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labelled data to judge by; a tenth of --train if left out.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Start afresh: MODEL is then a recipe's name, and this its tokenizer."),
    ] = None,
    text: common.TextColumn = None,
    pair: common.PairColumn = None,
    label: common.LabelColumn = None,
    choices: common.ChoiceColumns = None,
    long: common.Long = None,
    length: Annotated[int | None, typer.Option(min=8, metavar="N", help="Tokens in a row at most.")] = None,
    epochs: Annotated[float | None, typer.Option(metavar="N", help="Passes over the training data.")] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="Try batch 16/32, rate 5e-5/3e-5/2e-5, epochs 3/4; the best on --dev wins.")
    ] = False,
    tries: Annotated[
        list[str] | None, typer.Option("--try", metavar="KEY=V,V", help="Your own values to try; repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Repeat with so many seeds: mean and deviation.")] = 1,
    overrides: common.Overrides = None,
    strict: common.Strict = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", help="CPU threads; all cores if left out.")] = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Fine-tunes a model for a task. Ctrl-C saves and tells how to go on."""
    import json

    from keel.stages.finetune import finetune as run

    given = {
        "data.text": text,
        "data.pair": pair,
        "data.label": label,
        "data.choices": choices or None,
        "data.long.strategy": long,
        "data.length": length,
        "training.epochs": epochs,
    }
    changes = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
    options = {
        "train": train,
        "dev": dev,
        "out": out,
        "tokenizer": tokenizer,
        "overrides": [*changes, *(overrides or [])],
        "strict": strict,
        "resume": resume,
        "threads": threads,
        "device": device,
        "allow_pickle": allow_pickle,
        "report": None if quiet else common.say,
        "quiet": quiet,
    }
    if not grid and not tries and seeds == 1:
        common.print_result(f"model {out}", run(model, task, **options), as_json)  # type: ignore[arg-type]
        return
    from keel.stages.search import RECOMMENDED, search

    wanted = [*(RECOMMENDED if grid else ()), *(tries or [])]
    result = search(model, task, tries=wanted, seeds=seeds, **options)  # type: ignore[arg-type]
    if as_json:
        common.print_json(result)
        return
    columns = ("settings", "mean", "deviation", "learnt_nothing", "seconds")
    rows = [[row[name] for name in columns] for row in result["settings"]]
    common.print_table(f"{result['judged_by']} on the development data", columns, rows, right=range(1, len(columns)))
    common.print_result(f"model {out}", {"best": result["best"]["settings"], "run": result["best"]["best_run"]}, False)
