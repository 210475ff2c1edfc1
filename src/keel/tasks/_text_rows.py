"""Turns labelled texts into rows: one text or a pair, truncated to the row length as the recipe specifies.

In: a table with one or two texts in each row. Out: examples; one or more windows per example, and the number of tokens
that were cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keel.errors import Rejected, UserError
from keel.in_memory import Source
from keel.interfaces import Tokenizer
from keel.text.labelled import LabelledData, as_text, find_columns, read_examples
from keel.text.long_text import share_room
from keel.text.tables import Record
from keel.tokenizers.special_tokens import frame, framing
from keel.values import ExampleFile, Truncation, Usage, Window

ROLES = ("text", "pair", "label")


@dataclass(frozen=True)
class TextExample:
    """One text or two, the answer (None: unknown), and its file and line."""

    texts: tuple[str, ...]
    answer: Any = None
    where: str = ""


def text_usage(data: LabelledData) -> Usage:
    if not data.pair:
        return Usage()
    return Usage('--pair "Another text." "A text."', '("A text.", "Another text.")', several_texts=True)


def open_texts(path: Source, data: LabelledData, parse: Callable[[Any], tuple[Any, str]] | None) -> ExampleFile:
    """The examples of a file.

    `parse` converts a label cell into an answer, or returns the reason why it cannot; None: labels are not read.
    """
    # If the first text's column is named, no column is guessed for a second one, so nothing is left to find.
    if not (data.text and data.label):
        data = find_columns(path, data, ROLES)
    roles = ROLES if parse else ROLES[:2]
    return ExampleFile(lambda: (_example(record, parse) for record in read_examples(path, data, roles)), data)


def _example(record: Record | Rejected, parse: Callable[[Any], tuple[Any, str]] | None) -> TextExample | Rejected:
    if isinstance(record, Rejected):
        return record
    texts = tuple(as_text(record.fields[r]) or "" for r in ("text", "pair") if r in record.fields)
    answer, reason = parse(record.fields["label"]) if parse else (None, "")
    if any(not text.strip() for text in texts):
        reason = "empty text"
    if reason:
        return Rejected(record.file, record.line, reason)
    return TextExample(texts, answer, record.where)


def text_example(given: Any, pair: bool) -> TextExample:
    """An example from a Python caller's input: a text, or two if the model was trained on pairs."""
    texts = (given,) if isinstance(given, str) else tuple(given)
    if len(texts) != 1 + pair or any(not isinstance(text, str) for text in texts):
        if not pair and len(texts) == 2:
            raise UserError("this model was trained on single texts, so it takes no pair")
        raise UserError(f"{'a pair of texts' if pair else 'a text'} is needed, not {str(given)[:60]!r}")
    return TextExample(texts)


def text_windows(
    examples: Sequence[TextExample], tokenizer: Tokenizer, data: LabelledData
) -> tuple[list[Window], Truncation]:
    windows, cut, tokens, lost = list[Window](), 0, 0, 0
    for number, parts in enumerate(_encode(examples, tokenizer)):
        room = data.length - framing(tokenizer, len(parts))
        length = sum(map(len, parts))
        rows = [parts] if length <= room else _fit(parts, data, room)
        windows += [Window(*frame(tokenizer, row), number) for row in rows]
        missing = length - _kept(parts, data, room)
        cut, tokens, lost = cut + (missing > 0), tokens + length, lost + missing
    return windows, Truncation(len(examples), cut, tokens, lost)


def _encode(examples: Sequence[TextExample], tokenizer: Tokenizer) -> list[list[np.ndarray]]:
    flat = tokenizer.encode([text for example in examples for text in example.texts])
    ids = iter(flat)
    return [[next(ids) for _ in example.texts] for example in examples]


def _fit(parts: list[np.ndarray], data: LabelledData, room: int) -> list[list[np.ndarray]]:
    """The parts of each row. Of two texts the longer is truncated first; windows slide over both at the same time, so
    that every token of either is in a row, and there are as many rows as the longer text needs."""
    rooms = (room,) if len(parts) == 1 else share_room(len(parts[0]), len(parts[1]), room)
    windows = [data.long.places(len(part), space) for part, space in zip(parts, rooms, strict=True)]
    rows = max(map(len, windows))
    return [
        [part[own[row * len(own) // rows]] for part, own in zip(parts, windows, strict=True)] for row in range(rows)
    ]


def _kept(parts: list[np.ndarray], data: LabelledData, room: int) -> int:
    """How many tokens are in at least one row."""
    length = sum(map(len, parts))
    return length if data.long.strategy == "windows" else min(length, room)
