"""Reads labelled tables: .csv, .tsv, .jsonl, .parquet, .txt for texts without labels (each also .gz, but .parquet), and
tables in memory.

In: a file, and for each role ("text", "pair", "label", ...) the column that holds it. Out: its records one by one, and
for every row that cannot be used a `Rejected` with its position and the reason. Problems that affect the entire file
raise `UserError`; some of them are found only at its end.

.csv    the excel dialect; quoted fields may contain newlines
.tsv    no quoting at all
.jsonl  columns are keys; values keep their JSON types
.parquet, and tables in memory (`in_memory.py`): the same as .jsonl
.txt    one text per line, if only the text is needed

A column is a name in the header row; a number counts from 1 and means there is no header row.

Notable choices
- The file is read line by line, and a line or a row of more than RECORD_BYTES is rejected, so memory does not grow with
  the file.
- .csv is parsed strictly, as told in `rows`: a malformed row loses its own line only.
- A row wider than the header is rejected: usually a text contains a comma and is not quoted, and its label is wrong.
- Blank lines between rows are ignored. In .txt they are missing texts, and are rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keel.errors import Rejected, UserError, locate, near, suggest
from keel.files.parquet import parquet_columns, parquet_rows
from keel.in_memory import MemoryTable, Source
from keel.text.blocks import TextSource, Unreadable, check_regular
from keel.text.records import UNPAIRED, json_object, listed, one_line
from keel.text.rows import RECORD_BYTES, TOO_LONG, Line, Row, table_rows, whole_lines

NAME_LENGTH = 40  # of a column's name, at most; what is longer is taken for a text
MEMORY = "memory"  # the kind of a table that is not a file
OBJECTS = (".jsonl", ".parquet", MEMORY)  # kinds whose rows have named values of any type
TABLES = (".csv", ".tsv", *OBJECTS, ".txt")

Object = tuple[int, dict[str, Any], str]  # line, the object, the reason if it cannot be used


class UnusableRecord(Exception):
    """One record of a file cannot be used. The message is the reason for its `Rejected`."""


CHOSEN = ("text", "pair", "label")  # roles whose columns the user names by an option of that name


@dataclass(frozen=True, slots=True)
class Record:
    """A row: the value of each role."""

    file: str
    line: int  # where it begins, counted from 1, the header included
    fields: dict[str, Any]

    @property
    def where(self) -> str:
        return locate(self.file, self.line)


def read_table(source: Source | Path, columns: Mapping[str, str | None]) -> Iterator[Record | Rejected]:
    """The records of a file. `columns` maps roles to columns; a role mapped to None is left out."""
    check_file(source, TABLES)
    wanted = {role: column for role, column in columns.items() if column is not None}
    kind = kind_of(source)
    if kind in OBJECTS:
        return _records(str(source), _objects(source, list(wanted.values())), wanted)
    path = Path(str(source))
    if kind == ".txt":
        return _texts(path, _lines(path), wanted)
    return _fields(path, _rows(_lines(path), kind), wanted)


def column_names(source: Source | Path) -> list[str]:
    """The header of a table, or the keys of the first object of a .jsonl; a .txt has the single column `text`."""
    check_file(source, TABLES)
    kind, path = kind_of(source), Path(str(source))
    if kind == ".txt":
        return ["text"]
    if kind == ".parquet":
        return parquet_columns(path)
    if kind not in OBJECTS:
        return _header(path, _rows(_lines(path), kind))
    reason = ""
    for _, record, reason in _objects(source):
        if not reason:
            return list(record)
    if isinstance(source, MemoryTable):
        raise UserError(f"{source}: no row can be used: {reason}")
    raise UserError(f"{source}: no line of it is a JSON object; a .jsonl holds one object in each line")


# ---------------------------------------------------------------------------------------------------------------------
# For this module and the other readers in this folder


def looks_like_data(names: Sequence[str]) -> bool:
    """Whether the first row of a table is no header: it has a long text, a number, or twice the same."""
    numbers = any(name.strip().lstrip("+-").replace(".", "", 1).isdecimal() for name in names)
    return numbers or any(len(name) > NAME_LENGTH for name in names) or len(set(names)) < len(names)


def kind_of(source: Source | Path) -> str:
    """The suffix that determines how to read the file, without .gz; MEMORY for a table in memory."""
    if isinstance(source, MemoryTable):
        return MEMORY
    path = Path(source)
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def check_file(source: Source | Path, kinds: Sequence[str] = ()) -> None:
    """Raises if the file is missing or has none of these suffixes; without `kinds`, any suffix is accepted."""
    if isinstance(source, MemoryTable):
        if kinds and MEMORY not in kinds:
            raise UserError(f"{source}: rows in memory cannot be read here; give a file of {', '.join(kinds)}")
        if not source.items:
            raise UserError(f"{source}: there are no rows; give at least one")
        return
    path = Path(source)
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name one file in it")
    if not path.exists():
        neighbours = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UserError(f"{path}: no such file; check the path.{near(path.name, neighbours)}")
    check_regular(path)
    if kinds and kind_of(path) not in kinds:
        files = ", ".join(kind for kind in kinds if kind != MEMORY)
        raise UserError(f"{path}: not a supported kind of file here; give one of {files} (also with .gz)")


def empty_file(path: Path) -> UserError:
    return UserError(f"{path}: the file is empty; give one with at least one row")


def _lines(path: Path) -> Iterator[Line]:
    """The lines of a file, which must have one that is not blank."""
    blank = True
    try:
        for line in whole_lines(TextSource(path, bounded=True)):
            blank = blank and line.data is not None and not line.data.strip()
            yield line
    except Unreadable as unreadable:
        raise UserError(f"{path}: {unreadable}") from None
    if blank:
        raise empty_file(path)


def read_lines(path: Path) -> Iterator[str]:
    """Lines without the newline. A carriage return is kept."""
    check_file(path)
    for line in _lines(path):
        if line.data is None:
            raise UserError(f"{path}, line {line.number}: more than {RECORD_BYTES >> 20} MB in one line; split it")
        yield line.text


def unicode_lines(path: Path) -> Iterator[str]:
    """Lines without their line ends, including blank ones; raises if a line is not UTF-8."""
    for number, line in enumerate(read_lines(path), 1):
        if reason := not_unicode(line):
            raise UserError(f"{path}, line {number}: {reason}")
        yield line.removesuffix("\r")


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
# .txt, and tables whose rows are objects


def _texts(path: Path, lines: Iterator[Line], wanted: dict[str, str]) -> Iterator[Record | Rejected]:
    if set(wanted) != {"text"}:
        more = ", ".join(role for role in wanted if role != "text")
        raise UserError(
            f"{path}: a .txt holds one text per line and no {more or 'other column'};"
            " give a .csv, .tsv or .jsonl, or rename a file of columns with tabs to .tsv"
        )
    for line in lines:
        text = line.text.removesuffix("\r")
        reason = TOO_LONG if line.data is None else not_unicode(text, line.number) if text.strip() else "empty"
        yield Rejected(str(path), line.number, reason) if reason else Record(str(path), line.number, {"text": text})


def _records(file: str, objects: Iterator[Object], wanted: dict[str, str]) -> Iterator[Record | Rejected]:
    keys: set[str] = set()
    for line, record, reason in objects:
        keys |= record.keys()
        missing = [column for column in wanted.values() if column not in record]
        if not reason and missing:
            reason = f"no key '{missing[0]}': the record has {listed(list(record))}"
        if reason:
            yield Rejected(file, line, reason)
        else:
            yield Record(file, line, {role: record[column] for role, column in wanted.items()})
    for role, column in wanted.items():
        if keys and column not in keys:
            raise UserError(
                f"{file}: no record has the key '{column}', wanted as {role}{choose(file, role)}."
                f"{suggest(column, map(one_line, keys))}"
            )


def _objects(source: Source | Path, columns: Sequence[str] | None = None) -> Iterator[Object]:
    """The rows of a table as objects; a .parquet reads these columns only."""
    if isinstance(source, MemoryTable):
        for line, record, reason in source.records():
            yield line, record, reason or _not_unicode_inside(record)
        return
    path = Path(source)
    if kind_of(path) == ".jsonl":
        for text in _lines(path):
            if text.data is None or text.data.strip():
                yield text.number, *_object(text)
        return
    known = parquet_columns(path)
    line = 0
    for line, record in enumerate(parquet_rows(path, columns if columns and set(columns) <= set(known) else None), 1):
        yield line, record, _not_unicode_inside(record)
    if not line:
        raise empty_file(path)


def _not_unicode_inside(record: dict[str, Any]) -> str:
    """Why a text in one of the fields is not valid Unicode; empty if all are."""
    return next((reason for value in record.values() if (reason := _fault_of(value))), "")


def _fault_of(value: Any) -> str:
    if isinstance(value, str):
        return not_unicode(value)
    return not_unicode(json.dumps(value, ensure_ascii=False, default=repr)) if isinstance(value, list | dict) else ""


def _object(line: Line) -> tuple[dict[str, Any], str]:
    if line.data is None:
        return {}, TOO_LONG
    text = line.text
    if reason := not_unicode(text, line.number):
        return {}, reason
    record, reason = json_object(text)
    if reason:
        return {}, reason.replace(": line 1 column", " at column")  # it would be mistaken for a line of the file
    # Escapes can encode half a surrogate pair, also in keys and nested values.
    reason = not_unicode(json.dumps(record, ensure_ascii=False)) if "\\u" in text else ""
    return ({}, reason) if reason else (record, "")


# ---------------------------------------------------------------------------------------------------------------------
# .csv and .tsv


def _fields(path: Path, rows: Iterator[Row], wanted: dict[str, str]) -> Iterator[Record | Rejected]:
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
    for line, _, fields, reason in rows:
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


def _rows(lines: Iterator[Line], kind: str) -> Iterator[Row]:
    return (row for row in table_rows(lines, kind) if row.fields or row.reason)


def _header(path: Path, rows: Iterator[Row]) -> list[str]:
    line, _, header, reason = next(rows)
    reason = reason or not_unicode("\n".join(header))
    if reason:
        raise UserError(
            f"{path}, line {line}: the header row cannot be read ({reason}); repair it, or give columns as numbers"
        )
    return header


def choose(file: Source | Path, role: str) -> str:
    """How its column is chosen: an option of the command, or an argument in Python, where data are in memory."""
    if role not in CHOSEN:
        return ""
    if str(file) == "<inputs>":  # of a model, which has learnt the names of its columns
        return "; rename the column that holds it"
    return f"; choose with {role}=NAME" if str(file).startswith("<") else f"; choose with --{role}"


def _place(path: Path, header: list[str], role: str, column: str) -> int:
    if not header:
        if int(column) < 1:
            raise UserError(f"{path}: column {column}, wanted as {role}; columns are counted from 1")
        return int(column) - 1
    if column not in header:
        data = looks_like_data(header)
        hint = " Its first line looks like data." if data else suggest(column, map(one_line, header))
        raise UserError(
            f"{path}: its header has no column '{column}', wanted as {role}"
            f"{choose(path, role)} (a number counts from 1 and means there is no header).{hint}"
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
