"""Reads sentences whose words are listed, with a label for each: .jsonl (also .gz), .parquet, and tables in memory.

In: rows such as {"tokens": ["Angela", "Merkel", "sleeps"], "tags": ["B-PER", "I-PER", "O"]}. Out: sentences, as a file
of columns gives them (`conll.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keel.errors import Rejected
from keel.in_memory import Source
from keel.text.conll import Sentence
from keel.text.tables import OBJECTS, Record, UnusableRecord, column_names, kind_of, read_table

WORDS = ("tokens", "words")  # common names of the column of words, and of their labels
TAGS = ("tags", "labels", "ner_tags", "label", "pos_tags", "upos")


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
