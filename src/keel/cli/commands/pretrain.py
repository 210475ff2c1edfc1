"""`keel pretrain`: train a model on a corpus."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Name of a recipe (keel recipe list), or a YAML file.")
]
Budget = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Wall-clock time such as 45m or 2h; the learning-rate schedule ends with it."),
]
Init = Annotated[str | None, typer.Option(metavar="MODEL", help="Start from this model's architecture and weights.")]
SameTokenizer = Annotated[
    str | None, typer.Option(metavar="DIR", help="Check that the corpus was built with this tokenizer.")
]
Blanks = Annotated[
    list[str] | None,
    typer.Option("--blank", metavar="TEXT", help="Text with [MASK] to fill before and after training; repeatable."),
]


def pretrain(
    recipe: RecipeName,
    corpus: Annotated[str, typer.Option(metavar="DIR", help="Corpus folder.")],
    out: common.Out,
    overrides: common.Overrides = None,
    budget: Budget = None,
    steps: Annotated[int | None, typer.Option(min=1, metavar="N", help="Short for --set training.steps=N.")] = None,
    resume: common.Resume = False,
    init: Init = None,
    tokenizer: SameTokenizer = None,
    threads: common.Threads = None,
    device: common.Device = "auto",
    blanks: Blanks = None,
    track: common.Track = None,
    allow_pickle: common.AllowPickle = False,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Trains a model on a corpus. Ctrl-C saves a checkpoint and prints the command that continues."""
    from keel.stages.pretrain import pretrain as run

    result = run(
        recipe,
        corpus=corpus,
        out=out,
        overrides=[*(overrides or []), *([f"training.steps={steps}"] if steps is not None else [])],
        budget=budget,
        resume=resume,
        init=init,
        tokenizer=tokenizer,
        threads=threads,
        device=device,
        allow_pickle=allow_pickle,
        blanks=blanks or (),
        quiet=quiet,
        track=track,
    )
    common.print_result(f"model {out}", result, as_json)


COMMAND = common.Command(
    pretrain,
    help="Train a model on a corpus.",
    order=60,
    examples=[
        "keel pretrain modern-mini --corpus my-corpus --out my-model --budget 15m",
        "keel pretrain modern-mini --corpus my-corpus --out my-model --resume",
        "keel pretrain bert-mini --init any-bert --corpus my-corpus --out adapted --steps 2000",
        "keel pretrain modern-mini --corpus my-corpus --out my-model --track tensorboard",
        "keel pretrain my-recipe.yaml --corpus my-corpus --out my-model --set training.seed=2 --steps 1000",
    ],
)
