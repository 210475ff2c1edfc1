"""Texts with labelled stretches of characters: .jsonl, also .gz.

In: records whose label field is one of
    {"name": {"叶老桂": [[9, 11]]}}              CLUENER's: label, the stretch itself, its places with the end INCLUDED
    [[9, 12, "name"]]                           start, stop, label; the stop is not included
    [{"start": 9, "end": 12, "label": "name"}]  the same in words
Out: each text with its spans as (start, stop, label), the stop not included, in order of place.

Notable choices
- Places count characters (code points), as all three forms do in the data sets that use them.
- Spans that overlap cost their record: tags per token, which is what becomes of them, have no room for two labels. The
  same span twice is one span.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from keel.text.tables import Record, Rejected, check_file, read_table

Span = tuple[int, int, str]  # start, stop (not included), label

_FORMS = 'a list of [start, stop, "label"], a list of {"start", "end", "label"}, or {label: {stretch: [[first, last]]}}'


@dataclass(frozen=True, slots=True)
class Spanned:
    file: str
    line: int  # counted from 1
    text: str
    spans: list[Span]


class _Faulty(Exception):
    """The message is the reason."""


def read_spans(path: str | Path, text: str = "text", label: str = "label") -> tuple[list[Spanned], list[Rejected]]:
    """The texts of a file with their spans. `text` and `label` are the keys."""
    check_file(Path(path), (".jsonl",))
    records, rejected = read_table(path, {"text": text, "label": label})
    found: list[Spanned] = []
    for record in records:
        try:
            found.append(_spanned(record))
        except _Faulty as faulty:
            rejected.append(Rejected(record.file, record.line, str(faulty)))
    return found, sorted(rejected, key=lambda one: one.line)


def _spanned(record: Record) -> Spanned:
    text, label = record.fields["text"], record.fields["label"]
    if not isinstance(text, str):
        raise _Faulty(f"not a string: the text is a {type(text).__name__}")
    spans = sorted(set(_cluener(text, label) if isinstance(label, dict) else _listed(text, label)))
    for one, other in pairwise(spans):
        if other[0] < one[1]:
            raise _Faulty(f"overlap: {_shown(*one)} and {_shown(*other)}; keep one of them")
    return Spanned(record.file, record.line, text, spans)


def _listed(text: str, label: Any) -> Iterator[Span]:
    if not isinstance(label, list):
        raise _not_spans(label)
    for span in label:
        match span:
            case [start, stop, name] | {"start": start, "end": stop, "label": name}:
                yield _checked(text, start, stop, name)
            case _:
                raise _not_spans(span)


def _cluener(text: str, label: dict[str, Any]) -> Iterator[Span]:
    for name, stretches in label.items():
        if not isinstance(stretches, dict):
            raise _not_spans(label)
        for stretch, places in stretches.items():
            for place in places if isinstance(places, list) else [places]:
                match place:
                    case [first, int(last)]:
                        start, stop, _ = span = _checked(text, first, last + 1, name)
                    case _:
                        raise _not_spans(label)
                if text[start:stop] != stretch:
                    raise _Faulty(f"wrong place: {_shown(*span)} is {text[start:stop]!r:.60}, not {stretch!r:.60}")
                yield span


def _checked(text: str, start: Any, stop: Any, label: Any) -> Span:
    if not (type(start) is type(stop) is int and isinstance(label, str) and label.strip()):  # True is an int to Python
        raise _not_spans([start, stop, label])
    if start >= stop:
        raise _Faulty(f"empty span: {_shown(start, stop, label)}; it must stop after it starts")
    if start < 0 or stop > len(text):
        raise _Faulty(f"outside the text: {_shown(start, stop, label)}, the text has {len(text)} characters")
    return start, stop, label


def _shown(start: int, stop: int, label: str) -> str:
    return f"{label!r:.60} from {start} up to {stop}"


def _not_spans(found: Any) -> _Faulty:
    return _Faulty(f"not spans: {json.dumps(found, ensure_ascii=False):.60}; expected {_FORMS}")
