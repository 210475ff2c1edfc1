"""Reads labelled tables: .csv, .tsv, .jsonl, and .txt for texts without labels; each also .gz.

In: a file, and for each role ("text", "pair", "label", ...) the column that holds it. Out: the records, and for every
row that cannot be used a `Rejected` with its position and the reason. Problems that affect the entire file raise
`UserError`.

.csv    the excel dialect; quoted fields may contain newlines
.tsv    no quoting at all
.jsonl  columns are keys; values keep their JSON types
.txt    one text per line, if only the text is needed

A column is a name in the header row; a number counts from 1 and means there is no header row.

Notable choices
- Files are read into memory entirely, unlike in `readers`: labelled data fits.
- .csv is parsed strictly, and after a malformed row parsing continues with the line after the one where that row began.
  An unclosed quote therefore loses only its own line; a lenient parser would pair it with the next quote, however far
  away, and give one text the label of another.
- A row wider than the header is rejected: usually a text contains a comma and is not quoted, and its label is wrong.
- Lines are decoded with invalid bytes kept as lone surrogates, so that an invalid byte rejects only its own row.
- Blank lines between rows are ignored. In .txt they are missing texts, and are rejected.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from keel.errors import UserError, near, suggest
from keel.text.blocks import TextSource, Unreadable
from keel.text.records import RECORD_BYTES, UNPAIRED, json_object, listed

T = TypeVar("T")

TABLES = (".csv", ".tsv", ".jsonl", ".txt")

_Row = tuple[int, list[str], str]  # line where it begins, fields, reason to reject it


class UnusableRecord(Exception):
    """One record of a file cannot be used. The message is the reason for its `Rejected`."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is left out."""

    file: str
    line: int  # counted from 1; 0 where line numbers mean nothing, as inside one large JSON value
    reason: str  # `kind: detail`

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Record:
    """A row: the value of each role."""

    file: str
    line: int  # where it begins, counted from 1, the header included
    fields: dict[str, Any]


def read_table(path: str | Path, columns: dict[str, str | None]) -> tuple[list[Record], list[Rejected]]:
    """The records of a file. `columns` maps roles to columns; a role mapped to None is left out."""
    path = Path(path)
    lines = read_lines(path, TABLES)
    wanted = {role: column for role, column in columns.items() if column is not None}
    kind = kind_of(path)
    if kind == ".txt":
        rows = _texts(path, lines, wanted)
    elif kind == ".jsonl":
        rows = _objects(path, lines, wanted)
    else:
        rows = _fields(path, _rows(lines, kind), wanted)
    return separate(rows)


def column_names(path: str | Path) -> list[str]:
    """The header of a table, or the keys of the first object of a .jsonl; a .txt has the single column `text`."""
    path = Path(path)
    lines = read_lines(path, TABLES)
    kind = kind_of(path)
    if kind == ".txt":
        return ["text"]
    if kind != ".jsonl":
        return _header(path, _rows(lines, kind))
    for line in lines:
        record, reason = _object(line, 0)
        if not reason:
            return list(record)
    raise UserError(f"{path}: no line of it is a JSON object; a .jsonl holds one object in each line")


# ---------------------------------------------------------------------------------------------------------------------
# For this module and the other readers in this folder


def separate(rows: Iterable[T | Rejected]) -> tuple[list[T], list[Rejected]]:
    """The usable rows and the rejected ones, each in order."""
    usable: list[T] = []
    rejected: list[Rejected] = []
    for row in rows:
        if isinstance(row, Rejected):
            rejected.append(row)
        else:
            usable.append(row)
    return usable, rejected


def kind_of(path: Path) -> str:
    """The suffix that determines how to read the file, without .gz."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def check_file(path: Path, kinds: Sequence[str] = ()) -> None:
    """Raises if the file is missing or has none of these suffixes; without `kinds`, any suffix is accepted."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name one file in it")
    if not path.exists():
        neighbours = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UserError(f"{path}: no such file; check the path.{near(path.name, neighbours)}")
    if kinds and kind_of(path) not in kinds:
        raise UserError(f"{path}: not a supported kind of file here; give one of {', '.join(kinds)} (also with .gz)")


def read_bytes(path: Path, kinds: Sequence[str] = ()) -> bytes:
    """The content of a file, decompressed, without its byte-order mark."""
    check_file(path, kinds)
    try:
        data = b"".join(TextSource(path).blocks())
    except Unreadable as unreadable:
        raise UserError(f"{path}: {unreadable}") from None
    if not data.strip():
        raise UserError(f"{path}: the file is empty; give one with at least one row")
    return data


def read_lines(path: Path, kinds: Sequence[str] = ()) -> list[str]:
    """Lines without the newline. A carriage return is kept, because inside quotes it belongs to the text."""
    lines = read_bytes(path, kinds).decode("utf-8", "surrogateescape").split("\n")
    return lines if lines[-1] else lines[:-1]


def unicode_lines(path: Path) -> list[str]:
    """Lines without their line ends, including blank ones; raises if a line is not UTF-8."""
    lines = [line.removesuffix("\r") for line in read_lines(path)]
    for number, line in enumerate(lines, 1):
        if reason := not_unicode(line):
            raise UserError(f"{path}, line {number}: {reason}")
    return lines


def not_unicode(text: str, line: int = 0) -> str:
    """Why a text is not valid Unicode; empty if it is. `line` is where the text begins, 0 if that is not known."""
    if text.isascii() or not (unpaired := UNPAIRED.search(text)):
        return ""
    code = ord(unpaired[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte decoded by surrogateescape
        where = f" in line {line + text.count(chr(10), 0, unpaired.start())}" if line else ""
        return f"invalid UTF-8: byte 0x{code - 0xDC00:02x}{where}; save the text as UTF-8"
    return f"not Unicode: half a surrogate pair, \\u{code:04x}"


# ---------------------------------------------------------------------------------------------------------------------
# .txt and .jsonl


def _texts(path: Path, lines: list[str], wanted: dict[str, str]) -> Iterator[Record | Rejected]:
    if set(wanted) != {"text"}:
        more = ", ".join(role for role in wanted if role != "text")
        raise UserError(
            f"{path}: a .txt holds one text per line and no {more or 'other column'};"
            " give a .csv, .tsv or .jsonl, or rename a file of columns with tabs to .tsv"
        )
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\r")
        reason = not_unicode(text, number) if text.strip() else "empty"
        yield Rejected(str(path), number, reason) if reason else Record(str(path), number, {"text": text})


def _objects(path: Path, lines: list[str], wanted: dict[str, str]) -> Iterator[Record | Rejected]:
    file = str(path)
    keys: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record, reason = _object(line, number)
        keys |= record.keys()
        missing = [column for column in wanted.values() if column not in record]
        if not reason and missing:
            reason = f"no key '{missing[0]}': the record has {listed(list(record))}"
        if reason:
            yield Rejected(file, number, reason)
        else:
            yield Record(file, number, {role: record[column] for role, column in wanted.items()})
    for role, column in wanted.items():
        if keys and column not in keys:
            raise UserError(f"{path}: no record has the key '{column}', wanted as {role}.{suggest(column, keys)}")


def _object(line: str, number: int) -> tuple[dict[str, Any], str]:
    if reason := not_unicode(line, number):
        return {}, reason
    record, reason = json_object(line)
    if reason:
        return {}, reason.replace(": line 1 column", " at column")  # it would be mistaken for a line of the file
    # Escapes can encode half a surrogate pair, also in keys and nested values.
    reason = not_unicode(json.dumps(record, ensure_ascii=False)) if "\\u" in line else ""
    return ({}, reason) if reason else (record, "")


# ---------------------------------------------------------------------------------------------------------------------
# .csv and .tsv


def _fields(path: Path, rows: Iterator[_Row], wanted: dict[str, str]) -> Iterator[Record | Rejected]:
    file = str(path)
    numbered = {column.isdecimal() for column in wanted.values()}
    if len(numbered) == 2:
        listing = ", ".join(f"{role} = {column}" for role, column in wanted.items())
        raise UserError(
            f"{path}: columns by name and by number ({listing}); a number means there is no header, so give one kind"
        )
    header = [] if True in numbered else _header(path, rows)
    places = {role: _place(path, header, role, column) for role, column in wanted.items()}
    widest = -1
    for line, fields, reason in rows:
        widest = max(widest, len(fields))
        reason = reason or _fault(fields, places, header, line)
        if reason:
            yield Rejected(file, line, reason)
        else:
            yield Record(file, line, {role: fields[place] for role, place in places.items()})
    if widest < 0:
        raise UserError(f"{path}: a header and no rows; give a file that has some, or numbers if it has no header")
    for role, place in places.items():
        if not header and place >= widest > 0:
            raise UserError(f"{path}: there is no column {place + 1}, wanted as {role}; its widest row has {widest}")


def _header(path: Path, rows: Iterator[_Row]) -> list[str]:
    line, header, reason = next(rows)
    reason = reason or not_unicode("\n".join(header))
    if reason:
        raise UserError(
            f"{path}, line {line}: the header row cannot be read ({reason}); repair it, or give columns as numbers"
        )
    return header


def _place(path: Path, header: list[str], role: str, column: str) -> int:
    if not header:
        if int(column) < 1:
            raise UserError(f"{path}: column {column}, wanted as {role}; columns are counted from 1")
        return int(column) - 1
    if column not in header:
        raise UserError(
            f"{path}: its header has no column '{column}', wanted as {role}"
            f" (a number counts from 1 and means there is no header).{suggest(column, header)}"
        )
    if header.count(column) > 1:
        raise UserError(
            f"{path}: its header has the column '{column}' {header.count(column)} times; rename all but one"
        )
    return header.index(column)


def _fault(fields: list[str], places: dict[str, int], header: list[str], line: int) -> str:
    for role, place in places.items():
        if place >= len(fields):
            return f"too few columns: {len(fields)}, the {role} is in column {place + 1}"
    if header and any(fields[len(header) :]):
        return f"too many columns: {len(fields)}, the header has {len(header)}; is there a separator inside a text?"
    for place in places.values():
        if not_unicode(fields[place]):
            above = sum(field.count("\n") for field in fields[:place])  # newlines inside a row are in its fields
            return not_unicode(fields[place], line + above)
    return ""


def _rows(lines: list[str], kind: str) -> Iterator[_Row]:
    return _csv_rows(lines) if kind == ".csv" else _tsv_rows(lines)


def _tsv_rows(lines: list[str]) -> Iterator[_Row]:
    for number, line in enumerate(lines, 1):
        if line.strip("\r"):
            yield number, line.removesuffix("\r").split("\t"), ""


class _Feed:
    """Lines for csv.reader, with a position that can be moved back. Not a generator: it must go on after raising."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        if self.at == len(self.lines):
            raise StopIteration
        self.at += 1
        return self.lines[self.at - 1] + "\n"


def _csv_rows(lines: list[str]) -> Iterator[_Row]:
    csv.field_size_limit(max(csv.field_size_limit(), RECORD_BYTES))
    feed = _Feed(lines)
    reader = csv.reader(feed, strict=True)
    while feed.at < len(lines):
        begin = feed.at
        try:
            fields = next(reader)
        except csv.Error as error:
            yield begin + 1, [], _malformed(str(error), begin + 1, feed.at)
            feed.at = begin + 1
            continue
        if fields:
            yield begin + 1, fields, ""


def _malformed(error: str, first: int, last: int) -> str:
    if "unexpected end" in error:
        return "unclosed quote: it begins in this row and never ends"
    if "expected after" in error and last > first:
        return f"unclosed quote: it begins in this row, and the next one, in line {last}, does not end a field"
    return f"malformed row: {error.partition(' - ')[0]}"  # the rest is advice for programmers
