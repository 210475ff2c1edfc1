"""`keel demo`: all steps, on text that every machine with Python has."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from keel.cli import common
from keel.console import say
from keel.demo.folders import DEFAULT


def demo(
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Output folder.")] = DEFAULT,
    minutes: Annotated[float, typer.Option(min=0.1, metavar="N", help="Time for pretraining.")] = 4.0,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Pretrains a small BERT on Python's own documentation, fills masks with it, and fine-tunes it on four tasks."""
    from keel.demo.demo import demo as run

    result = run(out=out, minutes=minutes, report=None if quiet else say)
    page = shlex.join([_this_command(), "serve", "--demo", out])
    common.print_result("demo", {**result, "page": page} if as_json else result, as_json)
    if not as_json:
        typer.echo(f"The page of these models: {page}")


def _this_command() -> str:
    """As it can be typed again: `keel`, or the script where it is not on the PATH."""
    return "keel" if shutil.which("keel") or Path(sys.argv[0]).name != "keel" else sys.argv[0]


COMMAND = common.Command(
    demo,
    help="Run all steps on a small text, in a few minutes.",
    order=20,
    examples=["keel demo --out demo", "keel demo --minutes 10"],
)
