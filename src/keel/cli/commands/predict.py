"""`keel predict`: the predictions of a fine-tuned model, as JSON lines."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import say
from keel.errors import UserError

Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts; JSON lists if an input has several texts; - reads lines from stdin."),
]
File = Annotated[str | None, typer.Option(metavar="FILE", help="Read the texts from .txt .jsonl .csv .tsv .json.")]
Pair = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Second text of a pair; the context, for question answering.")
]
TextColumn = Annotated[str | None, typer.Option("--text", metavar="COL", help="Text column in --file.")]
PairColumn = Annotated[str | None, typer.Option("--pair-column", metavar="COL", help="Second text column in --file.")]


def predict(
    model: common.ModelFolder,
    texts: Texts = None,
    file: File = None,
    pair: Pair = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; always on.")] = True,
) -> None:
    """Prints one JSON object per text, in the same order; positions are character offsets."""
    common.use_threads(threads)
    from keel.inference.tasks import answer_groups, open_task
    from keel.stages.evaluate import predict_groups

    if bool(texts) == bool(file):
        raise UserError("predict needs texts, or --file; not both")
    if file:
        columns = {"text": text_column, "pair": pair_column}
        _print(predict_groups(model, file, columns=columns, device=device, allow_pickle=allow_pickle, report=say))
        return
    loaded = open_task(model, allow_pickle=allow_pickle, device=device)
    task = loaded.need_task()
    numbers = itertools.count(1)
    groups = common.text_groups(texts or [], blank=True)
    examples = ([loaded.example(_input(text, pair, task), next(numbers)) for text in some] for some in groups)
    _print(answer_groups(loaded, examples, say))


def _input(text: str, pair: str | None, task: Any) -> Any:
    """The input in the form that `Model.predict` takes."""
    if pair is not None:
        return text, pair
    if not task.usage.several_texts:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list):
        shown = f"[{task.usage.python[1:-1]}]"
        raise UserError(f"more than one text is needed: give --pair, or a JSON list such as {shown}")
    return value


def _print(groups: Iterable[list[dict[str, Any]]]) -> None:
    for answers in groups:
        for answer in answers:
            common.print_json(answer)
        sys.stdout.flush()


COMMAND = common.Command(
    predict,
    help="Predict with a fine-tuned model.",
    order=120,
    examples=[
        'keel predict my-classifier "What a lovely film."',
        'keel predict my-pairs --pair "A man plays." "Somebody makes music."',
        'keel predict my-reader --pair "Paris is the capital of France." "What is the capital of France?"',
        "keel predict my-tagger --file texts.jsonl",
        "keel predict my-tagger - < lines.txt",
        """echo '["What is the capital?", "Paris is the capital of France."]' | keel predict my-reader -""",
    ],
)
