"""Reads words with their senses: .jsonl with a text, the position of a word in it, and the sense the word has there.

    {"text": "We sat on the bank of the river.", "start": 14, "end": 18, "word": "bank", "sense": "bank/shore"}

In: a file (also a .csv or .tsv with these columns). Out: the occurrences, and the rows that cannot be used with their
reasons. `word` is optional; its default is the text from `start` to `end`, in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from keel.errors import Rejected
from keel.text.labelled import as_text
from keel.text.tables import column_names, read_table

COLUMNS = ("text", "start", "end", "sense")


@dataclass(frozen=True)
class Occurrence:
    text: str
    start: int
    end: int
    word: str
    sense: str


def read_senses(path: str) -> Iterator[Occurrence | Rejected]:
    named = "word" in column_names(path)
    for record in read_table(path, {name: name for name in (*COLUMNS, *(["word"] if named else []))}):
        if isinstance(record, Rejected):
            yield record
            continue
        occurrence, reason = _occurrence(record.fields)
        yield Rejected(record.file, record.line, reason) if occurrence is None else occurrence


def _occurrence(fields: dict[str, Any]) -> tuple[Occurrence | None, str]:
    text, sense = as_text(fields["text"]), as_text(fields["sense"])
    if text is None or not sense:
        return None, "no text, or no sense"
    bounds = [fields["start"], fields["end"]]
    if any(isinstance(bound, bool) or not str(bound).isdecimal() for bound in bounds):
        return None, "start and end must be integers"
    start, end = map(int, bounds)
    if not start < end <= len(text):
        return None, f"characters {start} to {end} are not in a text of {len(text)}"
    if not text[start:end].strip():
        return None, f"characters {start} to {end} are white space"
    return Occurrence(text, start, end, as_text(fields.get("word")) or text[start:end].lower(), sense), ""
