"""`keel demo`: the whole line, on text that is on every machine."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

EXAMPLE = common.example("keel demo --out demo", "keel demo --minutes 10")


def demo(
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Where to write everything.")] = "keel-demo",
    minutes: Annotated[float, typer.Option(min=0.1, metavar="N", help="Time for pretraining.")] = 4.0,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Trains a small BERT on this Python's documentation, shows what it fills in, and teaches it four tasks."""
    from keel.stages.demo import demo as run

    result = run(out=out, minutes=minutes, report=None if quiet else common.say)
    common.print_result("demo", result, as_json)
