"""Reads a table with all its columns, row by row: what `text/tables.py` reads of it, and everything else that is in it.

<<<<<<< HEAD
In: a .csv, .tsv, .jsonl, .txt or any other file that `text/tables.py` reads. Out: the names of its columns, and its
rows in order. These are the rows of `read_table`, usable or not, at the same lines, so that the two can be read side by
side.
=======
In: a .csv, .tsv, .jsonl, .txt or any other file that `text/tables.py` reads. Out: the names of its columns, and its
rows in order: those of `read_table`, usable or not, at the same lines, so that the two can be read side by side.
>>>>>>> bulk

Notable choices
- Nothing is rejected here: of a row that cannot be parsed, the values are what could be read, perhaps none.
- Columns have different names: a second `text` becomes `text_2`. Without a header they are column_1, column_2, ...
- Names that only a later row has (a .jsonl, a row of a file without header) are found by reading the file once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from keel.errors import Rejected, UserError
from keel.text.blocks import TextSource, Unreadable
from keel.text.records import json_object
from keel.text.rows import Line, Row, table_rows, whole_lines
from keel.text.tables import column_names, kind_of, read_table

NO_ROW = Row(0, 0, [], "")


class WholeRow(NamedTuple):
    line: int  # where it begins, counted from 1
    values: dict[str, Any]


@dataclass(frozen=True)
class WholeTable:
    columns: list[str]
    rows: Callable[[], Iterator[WholeRow]]  # reads the file from the beginning each time


class Scan(NamedTuple):
    fingerprint: str  # SHA-256 of the text
    lines: int  # 0 if the file does not consist of lines


def open_whole(path: str | Path, header: bool = True) -> WholeTable:
    """A table; `header`: whether the first row of a .csv or .tsv has the names of the columns."""
    path = Path(path)
    kind = kind_of(path)
    if kind in (".csv", ".tsv"):
        return _separated(path, kind, header)
    if kind == ".jsonl":
        return WholeTable(
            list(dict.fromkeys(key for row in _objects(path) for key in row.values)), lambda: _objects(path)
        )
    if kind == ".txt":
        return WholeTable(["text"], lambda: _texts(path))
    names = column_names(path)
    return WholeTable(names, lambda: _records(path, names))


def scan(path: str | Path) -> Scan:
    """The fingerprint of a file, and the number of its lines."""
    path = Path(path)
    if kind_of(path) == ".parquet":
        import pyarrow.parquet

        with path.open("rb") as file:
            return Scan(
                hashlib.file_digest(file, "sha256").hexdigest(), pyarrow.parquet.ParquetFile(path).metadata.num_rows
            )
    found, lines = hashlib.sha256(), 0
    try:
        for block in TextSource(path, bounded=True).raw_blocks():
            found.update(block)
            lines += block.count(b"\n")
    except Unreadable as unreadable:
        raise UserError(f"{path}: {unreadable}") from None
    return Scan(found.hexdigest(), lines)


def different(names: list[str]) -> list[str]:
    """The names, with a number after those that have occurred before."""
    found = list[str]()
    for name in names:
        found.append(free_name(name, {*found, *names}) if name in found else name)
    return found


def free_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken."""
    tries = (name if number == 1 else f"{name}_{number}" for number in range(1, len(taken) + 2))
    return next(one for one in tries if one not in taken)


def _lines(path: Path) -> Iterator[Line]:
    try:
        yield from whole_lines(TextSource(path, bounded=True))
    except Unreadable as unreadable:
        raise UserError(f"{path}: {unreadable}") from None


def _separated(path: Path, kind: str, header: bool) -> WholeTable:
    def found() -> Iterator[Row]:
        return (row for row in table_rows(_lines(path), kind) if row.fields or row.reason)

    if header:
        names = different(next(found(), NO_ROW).fields)
    else:
        names = [f"column_{place}" for place in range(1, max((len(row.fields) for row in found()), default=0) + 1)]

    def rows() -> Iterator[WholeRow]:
        following = found()
        if header:
            next(following, None)
        return (WholeRow(row.line, dict(zip(names, row.fields, strict=False))) for row in following)

    return WholeTable(names, rows)


def _texts(path: Path) -> Iterator[WholeRow]:
    for line in _lines(path):
        yield WholeRow(line.number, {"text": line.text.removesuffix("\r")})


def _objects(path: Path) -> Iterator[WholeRow]:
    for line in _lines(path):
        if line.data is None or line.data.strip():
            yield WholeRow(line.number, json_object(line.text)[0] if line.data else {})


def _records(path: Path, names: list[str]) -> Iterator[WholeRow]:
    for record in read_table(path, {name: name for name in names}):
        yield WholeRow(record.line, {} if isinstance(record, Rejected) else record.fields)
