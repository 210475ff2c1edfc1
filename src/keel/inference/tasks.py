"""Prediction with a fine-tuned model: opens it with its task, checks files of examples, and answers examples.

In: a model folder, examples. Out: answers, and one line about texts that did not fit.

Notable choice: a file is read twice, first to check every row, then to answer them. Nothing is computed for a file that
has to be corrected, and no file is held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from keel.errors import Rejected, UserError
from keel.in_memory import Source
from keel.inference.model import Model
from keel.text.labelled import LabelledData
from keel.values import ExampleFile, Truncation

SHOWN_ROWS = 5  # rejected rows that are listed


def open_task(
    model: str, columns: dict[str, Any] | None = None, allow_pickle: bool = False, device: str = "auto"
) -> Model:
    """A fine-tuned model; `columns` replace those that it was trained with."""
    loaded = Model.load(model, allow_pickle, device)
    if loaded.task is None:
        raise UserError(f"{model}: this model has not been fine-tuned; train one with keel finetune")
    given = {name: value for name, value in (columns or {}).items() if value is not None}
    if given:
        loaded.task = loaded.task.replace(**given)
    return loaded


def open_examples(loaded: Model, source: Source, labelled: bool = True) -> ExampleFile:
    """A file of examples, or rows in memory; the model's task is set to the columns of the file."""
    task = loaded.need_task()
    file = task.open(source, labelled)
    loaded.task = type(task)(task.config, file.data)
    return file


def usable(file: ExampleFile, reject: Callable[[Rejected], None]) -> Iterator[Any]:
    """The examples of a file; its rejected rows are given to `reject`."""
    for row in file.rows():
        if isinstance(row, Rejected):
            reject(row)
        else:
            yield row


@dataclass(frozen=True)
class Survey:
    """What a file of examples contains."""

    examples: int
    rejected: int
    first_rejected: list[Rejected]
    notes: tuple[str, ...]


def survey(file: ExampleFile) -> Survey:
    """Reads a file to its end and counts its rows."""
    examples, rejected, first = 0, 0, list[Rejected]()

    def reject(row: Rejected) -> None:
        nonlocal rejected
        rejected += 1
        if rejected <= SHOWN_ROWS:
            first.append(row)

    def counted() -> Iterator[Any]:
        nonlocal examples
        for example in usable(file, reject):
            examples += 1
            yield example

    rows = counted()
    notes = file.notes(rows)
    for _ in rows:  # those that `notes` did not read
        continue
    return Survey(examples, rejected, first, notes)


def answer_groups(
    loaded: Model, groups: Iterable[Iterable[Any]], report: Callable[[str], None] | None
) -> Iterator[list[dict[str, Any]]]:
    """The answers of each group of examples, as soon as they are known; at the end a line about texts that did not fit,
    also if the reader stops before."""
    total = Truncation()
    try:
        for examples in groups:
            for group in loaded.answer_groups(examples):
                total += group.truncation
                yield group.answers
    finally:
        if total.truncated_texts and report:
            report(describe_truncation(total, loaded.need_task().data))


def describe_truncation(truncation: Truncation, data: LabelledData) -> str:
    """One line about what did not fit; nothing is truncated silently."""
    if not truncation.truncated_texts:
        return f"all {truncation.texts:,} texts fit into rows of {data.length} tokens, or into their windows"
    texts = truncation.truncated_texts / truncation.texts
    tokens = truncation.truncated_tokens / truncation.tokens
    return (
        f"{100 * texts:.1f} % of the texts did not fit into rows of {data.length} tokens and were truncated "
        f"({data.long.strategy}); {100 * tokens:.1f} % of all tokens are lost"
    )
