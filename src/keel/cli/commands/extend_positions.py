"""`keel extend-positions`: a model for longer texts."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common


def extend_positions(
    model: common.ModelFolder,
    to: Annotated[int, typer.Option(min=8, metavar="N", help="Positions of the new model.")],
    out: common.Out,
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Extends a model to longer texts. Pretrain it on long rows afterwards (keel pretrain --init)."""
    from keel.stages.surgery import extend_positions as run

    common.print_result(f"model {out}", run(model, to, out, allow_pickle), as_json)


COMMAND = common.Command(
    extend_positions,
    help="Extend a model to longer texts.",
    order=180,
    examples=["keel extend-positions my-model --to 2048 --out my-long-model"],
)
