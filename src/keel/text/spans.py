"""Reads texts with labelled spans of characters: .jsonl (also .gz), .parquet, and tables in memory.

In: records whose label field has one of these forms
    {"name": {"叶老桂": [[9, 11]]}}              CLUENER: label, the spanned text, its positions with the end INCLUDED
    [[9, 12, "name"]]                           start, stop, label; the stop is exclusive
    [{"start": 9, "end": 12, "label": "name"}]  the same with keys
Out: each text with its spans as (start, stop, label), the stop exclusive, in order of position.

Notable choices
- Positions count characters (code points), as all three forms do in the data sets that use them.
- A record with overlapping spans is rejected: spans become one tag per token, which cannot hold two labels. A span that
  is given twice counts once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from keel.errors import Rejected
from keel.in_memory import Source
from keel.text.tables import OBJECTS, Record, UnusableRecord, check_file, read_table

LabelledSpan = tuple[int, int, str]  # start, stop (exclusive), label

_FORMS = 'a list of [start, stop, "label"], a list of {"start", "end", "label"}, or {label: {text: [[first, last]]}}'


@dataclass(frozen=True, slots=True)
class Spanned:
    file: str
    line: int  # counted from 1
    text: str
    spans: list[LabelledSpan]


def read_spans(source: Source, text: str = "text", label: str = "label") -> Iterator[Spanned | Rejected]:
    """The texts of a file with their spans. `text` and `label` are the keys of the fields."""
    check_file(source, OBJECTS)
    for record in read_table(source, {"text": text, "label": label}):
        if isinstance(record, Rejected):
            yield record
            continue
        try:
            yield _spanned(record)
        except UnusableRecord as unusable:
            yield Rejected(record.file, record.line, str(unusable))


def _spanned(record: Record) -> Spanned:
    text, label = record.fields["text"], record.fields["label"]
    if not isinstance(text, str):
        raise UnusableRecord(f"not a string: the text is a {type(text).__name__}")
    spans = sorted(set(_cluener(text, label) if isinstance(label, dict) else _listed(text, label)))
    for span, following in pairwise(spans):
        if following[0] < span[1]:
            raise UnusableRecord(f"overlap: {_shown(*span)} and {_shown(*following)}; keep one of them")
    return Spanned(record.file, record.line, text, spans)


def _listed(text: str, label: Any) -> Iterator[LabelledSpan]:
    if not isinstance(label, list):
        raise _not_spans(label)
    for span in label:
        match span:
            case [start, stop, name] | {"start": start, "end": stop, "label": name}:
                yield _checked(text, start, stop, name)
            case _:
                raise _not_spans(span)


def _cluener(text: str, label: dict[str, Any]) -> Iterator[LabelledSpan]:
    for name, spanned_texts in label.items():
        if not isinstance(spanned_texts, dict):
            raise _not_spans(label)
        for spanned, places in spanned_texts.items():
            for place in places if isinstance(places, list) else [places]:
                match place:
                    case [first, int(last)]:
                        start, stop, _ = span = _checked(text, first, last + 1, name)
                    case _:
                        raise _not_spans(label)
                if text[start:stop] != spanned:
                    shown = f"{_shown(*span)} is {text[start:stop]!r:.60}, not {spanned!r:.60}"
                    raise UnusableRecord(f"wrong place: {shown}")
                yield span


def _checked(text: str, start: Any, stop: Any, label: Any) -> LabelledSpan:
    # `type`, not isinstance: True is an instance of int.
    if not (type(start) is type(stop) is int and isinstance(label, str) and label.strip()):
        raise _not_spans([start, stop, label])
    if start >= stop:
        raise UnusableRecord(f"empty span: {_shown(start, stop, label)}; it must stop after it starts")
    if start < 0 or stop > len(text):
        raise UnusableRecord(f"outside the text: {_shown(start, stop, label)}, the text has {len(text)} characters")
    return start, stop, label


def _shown(start: int, stop: int, label: str) -> str:
    return f"{label!r:.60} from {start} up to {stop}"


def _not_spans(value: Any) -> UnusableRecord:
    return UnusableRecord(f"not spans: {json.dumps(value, ensure_ascii=False):.60}; expected {_FORMS}")
