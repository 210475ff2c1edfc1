"""`keel fill`: predict the token at each [MASK]."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import clean


def fill(
    model: common.ModelFolder,
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Text with [MASK]; - reads lines from stdin.")],
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Predictions per [MASK].")] = 5,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Predicts the most probable tokens at each [MASK]. With --json, one object per text."""
    common.use_threads(threads)
    import keel

    loaded = keel.load(model, allow_pickle=allow_pickle, device=device)
    for text in common.lines_or_arguments(texts):
        answers = loaded.fill(text, top=top)
        if as_json:
            common.print_json({"text": text, "masks": answers})
        else:
            _print_answers(text, answers)
        sys.stdout.flush()


def _print_answers(text: str, answers: list[list[dict[str, Any]]]) -> None:
    typer.echo(clean(text))
    for place, ranked in enumerate(answers, 1):
        rows = [(common.percent(a["probability"]), a["token"]) for a in ranked]
        title = f"[MASK] {place}" if len(answers) > 1 else ""
        common.print_table(title, ("probability", "token"), rows, right=(0,))


COMMAND = common.Command(
    fill,
    help="Predict the token at each [MASK].",
    order=70,
    examples=[
        'keel fill my-model "Paris is the [MASK] of France."',
        "keel fill my-model --json - < questions.txt",
    ],
)
