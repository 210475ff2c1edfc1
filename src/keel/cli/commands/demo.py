"""`keel demo`: all steps, on text that every machine with Python has."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common
from keel.console import say


def demo(
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Output folder.")] = "keel-demo",
    minutes: Annotated[float, typer.Option(min=0.1, metavar="N", help="Time for pretraining.")] = 4.0,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Pretrains a small BERT on Python's own documentation, fills masks with it, and fine-tunes it on four tasks."""
    from keel.demo.demo import demo as run

    result = run(out=out, minutes=minutes, report=None if quiet else say)
    common.print_result("demo", result, as_json)


COMMAND = common.Command(
    demo,
    help="Run all steps on a small text, in a few minutes.",
    order=20,
    examples=["keel demo --out demo", "keel demo --minutes 10"],
)
