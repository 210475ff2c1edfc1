"""Reads parallel texts: texts with their translations, from two files or from one table.

In: `train.en,train.de` (line n of one translates line n of the other; each also .gz), or one .tsv, .csv or .jsonl with
a column for each side. Out: pairs, and the rows that cannot be used with their reasons.

Notable choice: two files of different length are an error, found at the end of the shorter one. A missing line shifts
all lines after it, and every pair from there on would be a wrong translation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat, zip_longest
from pathlib import Path

from keel.errors import Rejected, UserError
from keel.in_memory import MemoryTable, Source
from keel.text.labelled import LabelledData, as_text, read_examples
from keel.text.tables import OBJECTS, TABLES, Record, check_file, kind_of, not_unicode, read_lines

COLUMNS = (".csv", ".tsv", *OBJECTS)  # tables that can have a column for each side


@dataclass(frozen=True)
class Pair:
    text: str
    answer: str | None  # its translation, None if not known
    where: str = ""


def two_files(path: Source) -> tuple[str, str] | None:
    """The two files of `a,b`; None if the path is one file."""
    if isinstance(path, MemoryTable) or "," not in path or Path(path).exists():
        return None
    parts = path.split(",")  # a file name may contain commas itself
    splits = [(",".join(parts[:n]), ",".join(parts[n:])) for n in range(1, len(parts))]
    return next((split for split in splits if all(Path(name).exists() for name in split)), splits[0])


def read_pairs(path: Source, data: LabelledData, translated: bool) -> Iterator[Pair | Rejected]:
    """The pairs of a file or of two. `translated`: whether to read the translations too."""
    names = two_files(path)
    if names is None:
        return _from_table(path, data, translated)
    for name in names:
        if kind_of(name) in COLUMNS:
            raise UserError(
                f"{name}: is a table by itself; two files with a comma between them hold one text in each line. Give "
                "the table alone, and its columns with --text and --label"
            )
    return _from_two(names, translated)


def _from_two(names: tuple[str, str], translated: bool) -> Iterator[Pair | Rejected]:
    for number, (text, answer) in enumerate(zip_longest(*map(_lines, names)), 1):
        if text is None or answer is None:
            shorter, longer = (0, 1) if text is None else (1, 0)
            raise UserError(
                f"{names[longer]}, line {number}: has no counterpart, because {names[shorter]} ends with line "
                f"{number - 1}; line n of one file must translate line n of the other"
            )
        reason, side = _fault(text, answer)
        where = f"{names[0]}, line {number}"
        yield Rejected(names[side], number, reason) if reason else Pair(text, answer if translated else None, where)


def _from_table(path: Source, data: LabelledData, translated: bool) -> Iterator[Pair | Rejected]:
    if not translated and kind_of(path) not in TABLES:  # one of two files, such as test.en
        return _source_only(str(path))
    if translated and kind_of(path) not in COLUMNS:
        check_file(path)
        raise UserError(
            f"{path}: has no translations. Name two files with a comma between them, as in {path},TRANSLATIONS, or a "
            ".tsv, .csv or .jsonl with a column for each side"
        )
    records = read_examples(path, data, ("text", "label") if translated else ("text",))
    return (_pair(record, translated) for record in records)


def _pair(record: Record | Rejected, translated: bool) -> Pair | Rejected:
    if isinstance(record, Rejected):
        return record
    text = as_text(record.fields["text"]) or ""
    answer = (as_text(record.fields["label"]) or "") if translated else None
    reason, _ = _fault(text, answer)
    return Rejected(record.file, record.line, reason) if reason else Pair(text, answer, record.where)


def _source_only(path: str) -> Iterator[Pair | Rejected]:
    for number, text in enumerate(_lines(path), 1):
        reason, _ = _fault(text, None)
        yield Rejected(path, number, reason) if reason else Pair(text, None, f"{path}, line {number}")


def _lines(name: str) -> Iterator[str]:
    """The lines of a file, without the empty ones at its end."""
    empty = 0
    for line in read_lines(Path(name)):
        text = line.removesuffix("\r")
        if not text:
            empty += 1
            continue
        yield from repeat("", empty)
        yield text
        empty = 0


def _fault(text: str, answer: str | None) -> tuple[str, int]:
    """Why a pair cannot be used and which side is at fault; "" if it can be used."""
    for side, (name, value) in enumerate((("source", text), ("translation", answer))):
        if value is None:
            continue
        if not value.strip():
            return f"empty {name}", side
        if not_unicode(value):
            return not_unicode(value), side
    return "", 0
