"""Reads texts from files of records: .jsonl, .csv, .tsv, .parquet.

In: the lines of a file. Out: (offset of the record, its text, reason to reject it) for each record; the text or the
reason is empty.

Notable choice: a record is parsed in one piece. One larger than RECORD_BYTES is rejected, because parsing takes several
times its size in memory. How tables are parsed, and what a malformed row costs, is in `rows`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.files.parquet import parquet_columns, parquet_rows, parquet_size
from keel.text.blocks import TextSource, Unreadable
from keel.text.rows import TOO_LONG, table_rows, whole_lines

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


def json_texts(source: TextSource, column: str) -> Iterator[tuple[int, str, str]]:
    try:
        for line in whole_lines(source):
            yield line.offset, *_json_text(line.data, line.offset, column)
    except Unreadable as unreadable:
        yield unreadable.offset, "", str(unreadable)


def _json_text(line: bytes | None, offset: int, column: str) -> tuple[str, str]:
    if line is None:
        return "", TOO_LONG
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


def one_line(name: str) -> str:
    """The name with control characters, line separators and lone surrogates as escapes."""
    return name if name.isprintable() else repr(name)[1:-1]


def listed(names: list[str]) -> str:
    """Names for a message of one line, whatever characters they contain."""
    shown = ", ".join(f"'{one_line(name)}'"[:40] for name in names[:12])
    return f"{shown}, ..." if len(names) > 12 else shown or "none"


def _rows(source: TextSource, kind: str) -> Iterator[tuple[int, list[str], str]]:
    """Yields (offset, fields, reason to reject the row); a file that cannot be read further ends with such a row."""
    try:
        for row in table_rows(whole_lines(source), kind):
            yield row.offset, row.fields, row.reason
    except Unreadable as unreadable:
        yield unreadable.offset, [], str(unreadable)


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


def check_parquet_column(path: Path, column: str) -> None:
    """Raises if there is no such column."""
    names = parquet_columns(path)
    if column not in names:
        raise UserError(f"{path}: there is no column '{column}'; it has {listed(names)} (choose with --column)")


def parquet_texts(source: TextSource, column: str) -> Iterator[tuple[int, str, str]]:
    """(number of the row, its text, reason to reject it) for each row, as `records.py` gives them."""
    path = source.path
    size, rows = path.stat().st_size, max(1, parquet_size(path))
    for number, row in enumerate(parquet_rows(path, [column])):
        text = row[column]
        source.position = size * (number + 1) // rows
        if not isinstance(text, str):
            yield number, "", f"not a string: column '{column}' holds a {type(text).__name__}"
        elif UNPAIRED.search(text):
            yield number, "", "not Unicode: half a surrogate pair"
        else:
            yield number, text, ""
