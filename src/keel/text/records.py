"""Reads texts from files of records: .jsonl, .csv, .tsv.

In: the lines of a file. Out: (offset of the record, its text, reason to reject it) for each record; the text or the
reason is empty.

Notable choices
- A record is parsed in one piece. One larger than RECORD_BYTES is rejected, because parsing takes several times its
  size in memory. After a row that is too long (for example because of an unclosed quote), reading continues with the
  next line.
- Tables are decoded with invalid bytes kept as lone surrogates, so that an invalid byte rejects its row and does not
  stop the parser.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.text.blocks import TextSource, Unreadable

RECORD_BYTES = 32 << 20

_TOO_LONG = f"record too long: more than {RECORD_BYTES >> 20} MB; split it, or give the text as .txt"
UNPAIRED = re.compile("[\ud800-\udfff]")


def decode(data: bytes, offset: int) -> tuple[str, str]:
    """The text and an empty reason, or an empty text and the reason to reject it."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return "", not_utf8(data[error.start], offset + error.start)
    return (text, "") if text and not text.isspace() else ("", "empty")


def not_utf8(byte: int, offset: int) -> str:
    return f"invalid UTF-8: byte 0x{byte:02x} at offset {offset}"


def _records(source: TextSource) -> Iterator[tuple[int, bytes | None]]:
    """Yields (offset, line), with None for a line that is too long: its bytes are read and discarded."""
    held: list[bytes] = []
    size, start = 0, 0
    try:
        for offset, line, ended in source.lines():
            if ended and not size:
                yield offset, line
                continue
            start = start if size else offset
            size += len(line)
            held.append(line)
            if size > RECORD_BYTES:
                held.clear()
            if ended:
                too_long, line = size > RECORD_BYTES, b"".join(held)
                held, size = [], 0
                yield start, None if too_long else line
    except Unreadable as unreadable:
        unreadable.offset = start if size else unreadable.offset
        raise


def json_texts(source: TextSource, column: str) -> Iterator[tuple[int, str, str]]:
    try:
        for offset, line in _records(source):
            yield offset, *_json_text(line, offset, column)
    except Unreadable as unreadable:
        yield unreadable.offset, "", str(unreadable)


def _json_text(line: bytes | None, offset: int, column: str) -> tuple[str, str]:
    if line is None:
        return "", _TOO_LONG
    decoded, reason = decode(line, offset)
    if reason:
        return "", reason
    record, reason = json_object(decoded)
    if reason:
        return "", reason
    if column not in record:
        return "", f"no column '{column}': the record has {listed(list(record))}"
    text = record[column]
    if not isinstance(text, str):
        return "", f"not a string: column '{column}' holds a {type(text).__name__}"
    if b"\\u" in line and (unpaired := UNPAIRED.search(text)):
        return "", f"not Unicode: half a surrogate pair, \\u{ord(unpaired[0]):04x}"
    return text, ""


def json_object(decoded: str) -> tuple[dict[str, Any], str]:
    """The object and an empty reason, or an empty object and the reason to reject it."""
    try:
        record = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        return {}, f"not JSON: {error}"
    if not isinstance(record, dict):
        return {}, f"not a JSON object: a {type(record).__name__}"
    return record, ""


def listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'"[:40] for name in names[:12])
    return f"{shown}, ..." if len(names) > 12 else shown or "none"


class _RecordTooLong(Exception):
    pass


class _RowLines:
    """Lines for csv.reader, and what the reader does not report: where a row began and whether the file ended in it.

    An object and not a generator, because it must continue after raising.
    """

    def __init__(self, source: TextSource) -> None:
        self.records = _records(source)
        self.begin_row()

    def begin_row(self) -> None:
        self.start, self.size, self.exhausted = -1, 0, False

    def __iter__(self) -> _RowLines:
        return self

    def __next__(self) -> str:
        try:
            offset, line = next(self.records)
        except StopIteration:
            self.exhausted = True
            raise
        self.start = offset if self.start < 0 else self.start
        self.size += len(line or b"")
        if line is None or self.size > RECORD_BYTES:
            raise _RecordTooLong
        # Invalid bytes are kept as lone surrogates: they reject only their own row, and only if they are in its text.
        return line.decode("utf-8", "surrogateescape") + "\n"


def _rows(source: TextSource, kind: str) -> Iterator[tuple[int, list[str], str]]:
    """Yields (offset, fields, reason to reject the row)."""
    csv.field_size_limit(max(csv.field_size_limit(), RECORD_BYTES))
    lines = _RowLines(source)
    reader = csv.reader(lines) if kind == ".csv" else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    while True:
        lines.begin_row()
        fields: list[str] = []
        reason = ""
        try:
            fields = next(reader)
            if lines.exhausted:
                reason = "unclosed quote: the field that begins in this row never ends"
        except StopIteration:
            return
        except _RecordTooLong:
            reason = _TOO_LONG
        except csv.Error as error:
            reason = f"malformed row: {error}"
        except Unreadable as unreadable:
            yield unreadable.offset if lines.start < 0 else lines.start, [], str(unreadable)
            return
        yield lines.start, fields, reason


def table_texts(source: TextSource, column: str, kind: str) -> Iterator[tuple[int, str, str]]:
    rows = _rows(source, kind)
    place = int(column) - 1 if column.isdecimal() else -1
    if place < 0:
        offset, header, reason = next(rows, (0, [], "empty"))
        if reason:
            yield offset, "", reason
            return
        place = header.index(column)
    for offset, fields, reason in rows:
        yield offset, *(("", reason) if reason else _field(fields, place, offset))


def _field(fields: list[str], place: int, offset: int) -> tuple[str, str]:
    if not fields:
        return "", "empty"
    if not 0 <= place < len(fields):
        return "", f"too few columns: {len(fields)}, the text is in column {place + 1}"
    text = fields[place]
    if not text.isascii() and (invalid := UNPAIRED.search(text)):
        return "", f"invalid UTF-8: byte 0x{ord(invalid[0]) - 0xDC00:02x} in the row at offset {offset}"
    return text, ""


def check_column(path: Path, kind: str, column: str) -> None:
    """Raises if the column is not in the header, before hours are spent on the files that come first."""
    if column.isdecimal():
        if int(column) < 1:
            raise UserError(f"column = {column}; columns are counted from 1")
        return
    rows = _rows(TextSource(path), kind)
    _, header, reason = next(rows, (0, [], "empty"))
    if reason and next(rows, None):
        raise UserError(f"{path}: its header row cannot be read ({reason}); repair it, or give --column a number")
    if not reason and column not in header:
        raise UserError(
            f"{path}: there is no column '{column}' in its header; it has {listed(header)}"
            " (choose with --column; a number counts from 1 and means there is no header)"
        )
