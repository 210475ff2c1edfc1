"""`keel compare`: several recipes or models, trained and scored in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import clean, say
from keel.errors import UserError

Recipes = Annotated[list[str], typer.Argument(metavar="RECIPE", help="Names of recipes, or YAML files.")]
Members = Annotated[
    list[str], typer.Argument(metavar="MEMBER", help="Recipes to train, or NAME=FOLDER for trained models.")
]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="NAME=KIND:TRAIN:DEV", help="Task to fine-tune on; repeatable."),
]
TaskSettings = Annotated[
    list[str] | None,
    typer.Option("--task-set", metavar="[NAME:]KEY=VALUE", help="Override a value of the task recipes; repeatable."),
]
FeatureSettings = Annotated[
    list[str] | None,
    typer.Option("--features-set", metavar="[MEMBER:]KEY=VALUE", help="The same for frozen encoders; repeatable."),
]
TunedSettings = Annotated[
    list[str] | None,
    typer.Option("--tuned-set", metavar="[MEMBER:]KEY=VALUE", help="The same for fine-tuned encoders; repeatable."),
]
Budget = Annotated[str | None, typer.Option(metavar="TIME", help="Wall-clock pretraining time for each: 15m, 1h.")]
Tokens = Annotated[int | None, typer.Option(min=1, metavar="N", help="Pretraining tokens for each, instead of time.")]
Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Pretraining runs per recipe.")]
TaskSeeds = Annotated[int, typer.Option(min=1, metavar="N", help="Fine-tuning runs per model and task.")]
SeedsOf = Annotated[
    list[str] | None,
    typer.Option("--seeds-of", metavar="MEMBER=N", help="Another number of runs for one member; repeatable."),
]
EvalRecipe = Annotated[
    str | None, typer.Option(metavar="RECIPE", help="Compute all held-out losses with this recipe's rows and masks.")
]
WordsCorpus = Annotated[
    str | None, typer.Option(metavar="DIR", help="The same text tokenized into whole words, for word2vec and ELMo.")
]
Ways = Annotated[
    str, typer.Option(metavar="WAY,...", help="features (frozen encoder and a BiLSTM), tuned (fine-tuned), or both.")
]
Sizes = Annotated[str, typer.Option(metavar="N,...", help="Also train on N examples only, for learning curves.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the comparison in --out; more seeds may be given.")]
AtOnce = Annotated[int, typer.Option(min=1, metavar="N", help="Runs in parallel; they share the threads.")]

# From a result: column names, rows, and the index of the first numeric column.
Table = Callable[[dict[str, Any]], tuple[list[str], list[list[Any]], int]]

group = typer.Typer()


@group.command(
    epilog=common.example(
        "keel compare pretraining bert-mini electra-mini --corpus my-corpus --budget 15m --out compared",
        "keel compare pretraining bert-mini roberta-mini --corpus c --tokens 20000000 --seeds 2 --out compared "
        "--task mood=classify:train.tsv:dev.tsv --task names=tag:train.conll:dev.conll --task-seeds 3 "
        "--task-set training.learning_rate=2e-4 --task-set names:training.epochs=6",
    )
)
def pretraining(
    recipes: Recipes,
    corpus: Annotated[str, typer.Option(metavar="DIR", help="Corpus folder.")],
    out: common.Out,
    budget: Budget = None,
    tokens: Tokens = None,
    seeds: Seeds = 1,
    tasks: Tasks = None,
    task_seeds: TaskSeeds = 1,
    task_settings: TaskSettings = None,
    eval_recipe: EvalRecipe = None,
    overrides: common.Overrides = None,
    resume: Resume = False,
    at_once: AtOnce = 1,
    threads: common.Threads = None,
    device: common.Device = "auto",
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Pretrains recipes at equal cost and fine-tunes each on the same tasks. Ctrl-C saves; --resume continues."""
    from keel.comparing.recipes import compare_pretraining

    result = compare_pretraining(
        recipes,
        corpus=corpus,
        out=out,
        budget=budget,
        tokens=tokens,
        seeds=seeds,
        tasks=_tasks(tasks, task_settings),
        task_seeds=task_seeds,
        eval_recipe=eval_recipe,
        overrides=overrides or [],
        resume=resume,
        at_once=at_once,
        threads=threads,
        device=device,
        report=None if quiet else say,
        quiet=quiet,
    )
    _print(_recipe_rows, "recipes", result, out, as_json)


@group.command(
    epilog=common.example(
        "keel compare lineage word2vec elmo-mini bert-mini --corpus pieces --words-corpus words --budget 15m "
        "--task mood=classify:train.tsv:dev.tsv --out lineage",
        "keel compare lineage vectors=my-vectors bert=my-model --task names=tag:train.conll:dev.conll --sizes 100,1000 "
        "--task-seeds 3 --out lineage",
    )
)
def lineage(
    members: Members,
    out: common.Out,
    tasks: Tasks = None,
    corpus: Annotated[str | None, typer.Option(metavar="DIR", help="Corpus folder, for recipes.")] = None,
    words_corpus: WordsCorpus = None,
    budget: Budget = None,
    ways: Ways = "features,tuned",
    sizes: Sizes = "",
    task_seeds: TaskSeeds = 3,
    seeds_of: SeedsOf = None,
    task_settings: TaskSettings = None,
    feature_settings: FeatureSettings = None,
    tuned_settings: TunedSettings = None,
    overrides: common.Overrides = None,
    resume: Resume = False,
    at_once: AtOnce = 1,
    threads: common.Threads = None,
    device: common.Device = "auto",
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Compares models from word2vec to BERT and its successors on the same tasks. Ctrl-C saves; --resume continues."""
    from keel.comparing.lineage import compare_lineage

    result = compare_lineage(
        members,
        out=out,
        sizes=_sizes(sizes),
        tasks=_tasks(tasks, task_settings),
        corpus=corpus,
        words_corpus=words_corpus,
        budget=budget,
        ways=[way.strip() for way in ways.split(",") if way.strip()],
        task_seeds=task_seeds,
        seeds_of=_seeds_of(seeds_of or []),
        overrides=overrides or [],
        features_overrides=feature_settings or [],
        tuned_overrides=tuned_settings or [],
        resume=resume,
        at_once=at_once,
        threads=threads,
        device=device,
        report=None if quiet else say,
        quiet=quiet,
    )
    _print(_member_rows, "members", result, out, as_json)


def _tasks(given: list[str] | None, settings: list[str] | None) -> list[Any]:
    from keel.comparing.tasks import LabelledTask, owner_of

    parsed = [LabelledTask.parse(task, settings or ()) for task in given or []]
    for unknown in {owner_of(s) for s in settings or []} - {None, *(task.name for task in parsed)}:
        raise UserError(f"--task-set {unknown}:...: there is no task of that name")
    return parsed


def _sizes(given: str) -> list[int]:
    try:
        counts = [int(size) for size in given.split(",") if size.strip()]
    except ValueError:
        raise UserError(f"--sizes {given}: expected numbers separated by commas, such as 100,1000") from None
    if any(count < 1 for count in counts):
        raise UserError(f"--sizes {given}: a number of examples is at least 1")
    return counts


def _seeds_of(given: list[str]) -> dict[str, int]:
    pairs = [one.rpartition("=") for one in given]
    for one, (name, _, count) in zip(given, pairs, strict=True):
        if not name or not count.isdecimal():
            raise UserError(f"--seeds-of {one}: expected MEMBER=N, such as elmo-mini=1")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise UserError("--seeds-of: a member is named twice")
    return {name: int(count) for name, _, count in pairs}


def _print(table: Table, title: str, result: dict[str, Any], out: str, as_json: bool) -> None:
    if as_json:
        common.print_json(result)
        return
    columns, rows, first = table(result)
    ranked = "mean" in columns
    common.print_table(f"{title}, best first" if ranked else title, columns, rows, right=range(first, len(columns)))
    typer.echo(clean(f"report: {out}/report.html"))


def _recipe_rows(result: dict[str, Any]) -> tuple[list[str], list[list[Any]], int]:
    from keel.comparing.recipes import shown

    rows = result["recipes"]
    tasks = list(rows[0]["tasks"])
    losses = list(dict.fromkeys(key for row in rows for key in row["held_out"]))
    body = []
    for row in rows:
        scores = [shown(row["tasks"][name]) for name in tasks] + ([_mean(row["mean_score"])] if tasks else [])
        held_out = [shown(row["held_out"][key]) if key in row["held_out"] else "" for key in losses]
        body.append([row["recipe"], *scores, *held_out, round(row["tokens_per_second"])])
    return ["recipe", *tasks, *(["mean"] if tasks else []), *losses, "tokens/s"], body, 1


def _member_rows(result: dict[str, Any]) -> tuple[list[str], list[list[Any]], int]:
    from keel.comparing.recipes import shown

    rows = result["rows"]
    tasks = list(rows[0]["tasks"])
    body = []
    for row in rows:
        scores = [shown(row["tasks"][name]) for name in tasks]
        costs = [row["seeds"], row["parameters"], round(row["seconds"] / 60, 1)]
        body.append([row["member"], row["way"], *scores, _mean(row["mean_score"]), *costs])
    return ["member", "used as", *tasks, "mean", "seeds", "parameters", "minutes"], body, 2


def _mean(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4f}"


COMMAND = common.Command(
    group,
    help="Compare recipes and models on your own data.",
    order=160,
    examples=["keel compare pretraining bert-mini electra-mini --corpus c --budget 15m --out o"],
)
