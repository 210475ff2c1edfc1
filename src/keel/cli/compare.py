"""`keel compare`: several ways to the same end, side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from keel.cli import common

app = typer.Typer(cls=common.Group, help="Compare recipes and models on your own data.", rich_markup_mode=None)

Tasks = Annotated[
    list[str] | None, typer.Option("--task", metavar="NAME=KIND:TRAIN:DEV", help="Fine-tune each; repeatable.")
]
TaskSettings = Annotated[
    list[str] | None,
    typer.Option("--task-set", metavar="[NAME:]KEY=VALUE", help="Change the tasks' recipes; repeatable."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the one in --out, or with more seeds.")]
AtOnce = Annotated[int, typer.Option(min=1, metavar="N", help="So many runs at once; they share the threads.")]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="CPU threads; all cores if left out.")]


@app.callback()
def _group() -> None:
    """Compare recipes and models on your own data."""


@app.command(
    epilog=common.example(
        "keel compare pretraining bert-mini electra-mini --corpus my-corpus --budget 15m --out compared",
        "keel compare pretraining bert-mini roberta-mini --corpus c --tokens 20000000 --seeds 2 --out compared "
        "--task mood=classify:train.tsv:dev.tsv --task names=tag:train.conll:dev.conll --task-seeds 3 "
        "--task-set training.learning_rate=2e-4 --task-set names:training.epochs=6",
    )
)
def pretraining(
    recipes: Annotated[list[str], typer.Argument(metavar="RECIPE...", help="Names of recipes, or YAML files.")],
    corpus: Annotated[str, typer.Option(metavar="DIR", help="The corpus folder.")],
    out: common.Out,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help="Wall-clock time for each: 15m, 1h.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help="Instead: tokens for each.")] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Pretrain each so many times.")] = 1,
    tasks: Tasks = None,
    task_seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Fine-tune each so many times.")] = 1,
    task_settings: TaskSettings = None,
    judge: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Take all held-out losses with this one's rows and masks.")
    ] = None,
    overrides: common.Overrides = None,
    resume: Resume = False,
    at_once: AtOnce = 1,
    threads: Threads = None,
    device: common.Device = "auto",
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Pretrains several recipes at equal cost and fine-tunes each on the same tasks. Ctrl-C saves."""
    from keel.stages.compare import compare_pretraining

    result = compare_pretraining(
        recipes,
        corpus=corpus,
        out=out,
        budget=budget,
        tokens=tokens,
        seeds=seeds,
        tasks=_tasks(tasks, task_settings),
        task_seeds=task_seeds,
        judge=judge,
        overrides=overrides or [],
        resume=resume,
        at_once=at_once,
        threads=threads,
        device=device,
        report=None if quiet else common.say,
        quiet=quiet,
    )
    if as_json:
        common.print_json(result)
    else:
        _print(result)
        typer.echo(f"the page: {out}/report.html")


@app.command(
    epilog=common.example(
        "keel compare lineage word2vec elmo-mini bert-mini --corpus pieces --words-corpus words --budget 15m "
        "--task mood=classify:train.tsv:dev.tsv --out lineage",
        "keel compare lineage vectors=my-vectors bert=my-model --task names=tag:train.conll:dev.conll --sizes 100,1000 "
        "--task-seeds 3 --out lineage",
    )
)
def lineage(
    members: Annotated[
        list[str], typer.Argument(metavar="MEMBER...", help="Recipes to train here, or NAME=FOLDER for models.")
    ],
    out: common.Out,
    tasks: Tasks = None,
    corpus: Annotated[str | None, typer.Option(metavar="DIR", help="The corpus to train on.")] = None,
    words_corpus: Annotated[
        str | None, typer.Option(metavar="DIR", help="The same text as whole words, for word2vec and ELMo.")
    ] = None,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help="Training time for each: 15m, 1h.")] = None,
    ways: Annotated[
        str, typer.Option(metavar="WAY,...", help="features (frozen, with a BiLSTM), tuned, or both.")
    ] = "features,tuned",
    sizes: Annotated[
        str, typer.Option(metavar="N,...", help="Also learn from so many examples only: learning curves.")
    ] = "",
    task_seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Fine-tune each so many times.")] = 3,
    seeds_of: Annotated[
        list[str] | None,
        typer.Option("--seeds-of", metavar="MEMBER=N", help="Another number of times for one member; repeatable."),
    ] = None,
    task_settings: TaskSettings = None,
    feature_settings: Annotated[
        list[str] | None,
        typer.Option("--features-set", metavar="[MEMBER:]KEY=VALUE", help="Change how features learn; repeatable."),
    ] = None,
    tuned_settings: Annotated[
        list[str] | None,
        typer.Option("--tuned-set", metavar="[MEMBER:]KEY=VALUE", help="Change how members are tuned; repeatable."),
    ] = None,
    overrides: common.Overrides = None,
    resume: Resume = False,
    at_once: AtOnce = 1,
    threads: Threads = None,
    device: common.Device = "auto",
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Compares the whole line from word2vec to BERT and its kin on the same tasks. Ctrl-C saves."""
    from keel.errors import UserError
    from keel.stages.lineage import compare_lineage

    try:
        counts = [int(size) for size in sizes.split(",") if size.strip()]
    except ValueError:
        raise UserError(f"--sizes {sizes}: numbers with commas between them are needed, such as 100,1000") from None
    if any(count < 1 for count in counts):
        raise UserError(f"--sizes {sizes}: a number of examples is 1 at least")
    result = compare_lineage(
        members,
        out=out,
        tasks=_tasks(tasks, task_settings),
        corpus=corpus,
        words_corpus=words_corpus,
        budget=budget,
        ways=[way.strip() for way in ways.split(",") if way.strip()],
        task_seeds=task_seeds,
        seeds_of=_counts(seeds_of or []),
        sizes=counts,
        overrides=overrides or [],
        features_overrides=feature_settings or [],
        tuned_overrides=tuned_settings or [],
        resume=resume,
        at_once=at_once,
        threads=threads,
        device=device,
        report=None if quiet else common.say,
        quiet=quiet,
    )
    if as_json:
        common.print_json(result)
        return
    from keel.stages.compare import shown

    rows = result["rows"]
    names = list(rows[0]["tasks"])
    columns = ["member", "used as", *names, "mean", "seeds", "parameters", "minutes"]
    body = [
        [
            row["member"],
            row["way"],
            *(shown(row["tasks"][name]) for name in names),
            _mean(row["mean_score"]),
            row["seeds"],
            row["parameters"],
            round(row["seconds"] / 60, 1),
        ]
        for row in rows
    ]
    common.print_table("members, the best first", columns, body, right=range(2, len(columns)))
    typer.echo(f"the page: {out}/report.html")


def _tasks(given: list[str] | None, settings: list[str] | None) -> list[Any]:
    from keel.errors import UserError
    from keel.stages.labelled_tasks import LabelledTask, owner_of

    parsed = [LabelledTask.parse(task, settings or ()) for task in given or []]
    for strange in {owner_of(s) for s in settings or []} - {None, *(task.name for task in parsed)}:
        raise UserError(f"--task-set {strange}:...: there is no task of that name")
    return parsed


def _counts(given: list[str]) -> dict[str, int]:
    from keel.errors import UserError

    pairs = [one.rpartition("=") for one in given]
    for one, (name, _, count) in zip(given, pairs, strict=True):
        if not name or not count.isdecimal():
            raise UserError(f"--seeds-of {one}: expected MEMBER=N, such as elmo-mini=1")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise UserError("--seeds-of: a member is named twice")
    return {name: int(count) for name, _, count in pairs}


def _mean(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4f}"


def _print(result: dict[str, Any]) -> None:
    from keel.stages.compare import shown

    rows = result["recipes"]
    tasks = list(rows[0]["tasks"])
    losses = list(dict.fromkeys(key for row in rows for key in row["held_out"]))
    columns = ["recipe", *tasks, *(["mean"] if tasks else []), *losses, "tokens/s"]
    body = []
    for row in rows:
        scores = [shown(row["tasks"][name]) for name in tasks] + ([_mean(row["mean_score"])] if tasks else [])
        held = [shown(row["held_out"][key]) if key in row["held_out"] else "" for key in losses]
        body.append([row["recipe"], *scores, *held, round(row["tokens_per_second"])])
    common.print_table("recipes, the best first" if tasks else "recipes", columns, body, right=range(1, len(columns)))
