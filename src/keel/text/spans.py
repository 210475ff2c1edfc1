"""Reads rows of tagged texts: labelled spans of characters, or a list of words with a label for each; .jsonl (also
.gz), .parquet, and tables in memory.

In: records whose label field has one of these forms
    {"name": {"叶老桂": [[9, 11]]}}              CLUENER: label, the spanned text, its positions with the end INCLUDED
    [[9, 12, "name"]]                           start, stop, label; the stop is exclusive
    [{"start": 9, "end": 12, "label": "name"}]  the same with keys
Out: each text with its spans as (start, stop, label), the stop exclusive, in order of position.

In: rows such as {"tokens": ["Angela", "Merkel", "sleeps"], "tags": ["B-PER", "I-PER", "O"]}. Out: sentences, as a file
of columns gives them (`conll.py`).

Notable choices
- Positions count characters (code points), as all three forms do in the data sets that use them.
- A record with overlapping spans is rejected: spans become one tag per token, which cannot hold two labels. A span that
  is given twice counts once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from keel.errors import Rejected
from keel.in_memory import Source
from keel.text.conll import Sentence
from keel.text.tables import OBJECTS, Record, UnusableRecord, check_file, column_names, kind_of, read_table

WORDS = ("tokens", "words")  # common names of the column of words, and of their labels
TAGS = ("tags", "labels", "ner_tags", "label", "pos_tags", "upos")

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


# ---------------------------------------------------------------------------------------------------------------------
# Words with a label for each


def word_columns(source: Source, text: str | None, label: str | None) -> tuple[str, str] | None:
    """The columns of the words and of their labels; None if the rows hold texts, not lists of words."""
    if kind_of(source) not in OBJECTS:
        return None
    names = column_names(source)
    words = text or (None if "text" in names else next((name for name in WORDS if name in names), None))
    if words is None or words not in names:
        return None
    rows = read_table(source, {"words": words})
    first = next((row for row in rows if isinstance(row, Record)), None)
    if first is None or not isinstance(first.fields["words"], list):
        return None
    return words, label or next((name for name in TAGS if name in names), TAGS[0])


def read_word_rows(source: Source, words: str, tags: str | None) -> Iterator[Sentence | Rejected]:
    """The sentences; `tags`: the column of the labels, None if they are not known."""
    for record in read_table(source, {"words": words, "tags": tags}):
        if isinstance(record, Rejected):
            yield record
            continue
        try:
            yield _sentence(record)
        except UnusableRecord as unusable:
            yield Rejected(record.file, record.line, str(unusable))


def _sentence(record: Record) -> Sentence:
    words = _texts(record.fields["words"], "words")
    tags = _texts(record.fields["tags"], "labels") if "tags" in record.fields else []
    if tags and len(tags) != len(words):
        raise UnusableRecord(f"{len(words)} words, but {len(tags)} labels; each word needs one")
    if not words:
        raise UnusableRecord("no words")
    return Sentence(record.file, record.line, words, tags)


def _texts(value: object, what: str) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise UnusableRecord(f"the {what} are not a list: {value!r:.60}")
    texts = [str(one) for one in value if isinstance(one, str | int) and str(one).strip()]
    if len(texts) < len(value):
        raise UnusableRecord(f"one of the {what} is empty, or is no text")
    return texts
