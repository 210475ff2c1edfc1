"""`keel pretrain`: a corpus and a recipe become a model folder."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

EXAMPLE = common.example(
    "keel pretrain bert-mini --corpus my-corpus --out my-model --budget 45m",
    "keel pretrain bert-mini --corpus my-corpus --out my-model --resume",
    "keel pretrain bert-mini --init any-bert --corpus my-corpus --out adapted --steps 2000",
    "keel pretrain my-recipe.yaml --corpus my-corpus --out my-model --set training.seed=2 --steps 1000",
)


def pretrain(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe's name (keel recipe list), or a YAML file.")
    ],
    corpus: Annotated[str, typer.Option(metavar="DIR", help="The corpus folder.")],
    out: common.Out,
    overrides: common.Overrides = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wall-clock time to plan for and end within: 45m, 2h.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, metavar="N", help="Short for --set training.steps=N.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    init: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Go on from this model: its shape and weights.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="DIR", help="Check that the corpus was built with this tokenizer.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", help="CPU threads; all cores if left out.")] = None,
    device: common.Device = "auto",
    blanks: Annotated[
        list[str] | None,
        typer.Option("--blank", metavar="TEXT", help="A text with [MASK] to fill before and after, for the report."),
    ] = None,
    allow_pickle: common.AllowPickle = False,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Pretrains a model. Ctrl-C saves and tells how to go on."""
    from keel.stages.pretrain import pretrain as run

    changes = [*(overrides or []), *([f"training.steps={steps}"] if steps is not None else [])]
    result = run(
        recipe,
        corpus=corpus,
        out=out,
        overrides=changes,
        budget=budget,
        resume=resume,
        init=init,
        tokenizer=tokenizer,
        threads=threads,
        device=device,
        allow_pickle=allow_pickle,
        blanks=blanks or (),
        quiet=quiet,
    )
    common.print_result(f"model {out}", result, as_json)
