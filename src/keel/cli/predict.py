"""`keel predict`: what a fine-tuned model answers, as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.errors import UserError

EXAMPLE = common.example(
    'keel predict my-classifier "What a lovely film."',
    'keel predict my-pairs --pair "A man plays." "Somebody makes music."',
    'keel predict my-reader --pair "Paris is the capital of France." "What is the capital of France?"',
    "keel predict my-tagger --file texts.jsonl",
    "keel predict my-tagger - < lines.txt",
    """echo '["What is the capital?", "Paris is the capital of France."]' | keel predict my-reader -""",
)


def predict(
    model: common.ModelFolder,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Texts, or JSON lists where a model takes several; - reads lines from stdin."
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file instead: .txt .jsonl .csv .tsv .json")
    ] = None,
    pair: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text of a pair; for answers the text to search.")
    ] = None,
    text_column: Annotated[str | None, typer.Option("--text", metavar="COL", help="The text's column.")] = None,
    pair_column: Annotated[
        str | None, typer.Option("--pair-column", metavar="COL", help="The second text's column in --file.")
    ] = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as always with this verb.")] = True,
) -> None:
    """Prints one JSON object for each text, in the given order; places are characters of the text."""
    from keel.stages import evaluate

    if bool(texts) == bool(file):
        raise UserError("predict needs texts, or --file; not both")
    if file:
        columns = {"text": text_column, "pair": pair_column}
        options = {"device": device, "allow_pickle": allow_pickle, "report": common.say}
        _print(evaluate.predict(model, file, columns=columns, **options))  # type: ignore[arg-type]
        return
    loaded = evaluate.open_task(model, allow_pickle=allow_pickle, device=device)
    given = [_input(text, pair, loaded.task) for text in common.lines_or_arguments(texts or [], blank=True)]
    _print(evaluate.answer(loaded, [loaded.task.example(one) for one in given], common.say))


def _input(text: str, pair: str | None, task: Any) -> Any:
    """What a Python caller would give for it."""
    if pair is not None:
        return text, pair
    if not task.several_texts:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list):
        shown = f"[{task.usage[1][1:-1]}]"
        raise UserError(f"more than one text is needed: give --pair, or a JSON list such as {shown}")
    return value


def _print(answers: Iterable[dict[str, Any]]) -> None:
    for answer in answers:
        common.print_json(answer)
    sys.stdout.flush()
