"""Writes tables: .csv, .jsonl and .parquet; the first two also .gz.

In: rows as dictionaries, perhaps with values missing. Out: a file that csv, pandas, pyarrow and polars read.

.csv      the excel dialect with \\n; texts as they are, null as nothing, all other values (numbers, lists) as JSON
.jsonl    one object per row, with the keys that the row has
.parquet  texts, numbers and nested values in types of their own; the columns of a row group are typed together

Notable choices
- The same rows give the same bytes: gzip headers have neither time nor name.
- The type of a parquet column is the one that fits all its values, found by reading the rows once before. A column
  whose values have none in common (or one that parquet cannot store) is written as text, like in .csv.
- A character that is half a surrogate pair (a byte that was not UTF-8) becomes U+FFFD: the file is valid UTF-8.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from keel.errors import UserError
from keel.files.plain_json import json_line

KINDS = (".csv", ".jsonl", ".parquet")
ROWS_AT_ONCE = 4096
GROUP_ROWS = 1 << 16  # of a parquet row group,
GROUP_CHARACTERS = 1 << 26  # and about as many characters at most
HALF = re.compile("[\ud800-\udfff]")

Rows = Callable[[], Iterator[dict[str, Any]]]  # reads them from the beginning each time


def check_kind(path: Path) -> str:
    """The kind of table that a name asks for; raises if there is none, or if pyarrow is needed and missing."""
    kind = (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()
    if kind not in KINDS or (kind == ".parquet" and path.suffix == ".gz"):
        raise UserError(f"{path}: answers are written as .csv, .jsonl (also with .gz) or .parquet; choose such a name")
    if kind == ".parquet":
        need_pyarrow()
    return kind


def need_pyarrow() -> tuple[Any, Any]:
    """pyarrow and its parquet module; an error explains how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError("parquet files need pyarrow: pip install 'keel-nlp[parquet]'") from None
    return pyarrow, pyarrow.parquet


def write_table(path: Path, name: Path, columns: Sequence[str], rows: Rows) -> None:
    """Writes the rows to `path`, in the format that `name` asks for. `columns`: all that occur, in order."""
    kind = check_kind(name)
    if kind == ".parquet":
        _write_parquet(path, columns, rows)
        return
    with path.open("wb") as file, _packed(file, name) as written:
        for text in _csv(columns, rows()) if kind == ".csv" else _json_lines(rows()):
            written.write(_utf8(text))


def _packed(file: IO[bytes], name: Path) -> AbstractContextManager[Any]:
    """What to write to, so that the file is compressed if its name ends with .gz."""
    return gzip.GzipFile("", "wb", 6, file, mtime=0) if name.suffix == ".gz" else nullcontext(file)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return HALF.sub("\ufffd", text).encode()


def _json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    return (json_line(row) + "\n" for row in rows)


def _csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    held = io.StringIO()
    plain = csv.writer(held, lineterminator="\n")
    quoted = csv.writer(held, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for cells in itertools.chain([list(columns)], ([_cell(row.get(name)) for name in columns] for row in rows)):
        # The plain writer does not quote a carriage return, which readers take for the end of a row.
        (quoted if any("\r" in cell for cell in cells) else plain).writerow(cells)
        if held.tell() > 1 << 18:
            yield held.getvalue()
            held.seek(0)
            held.truncate()
    yield held.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json_line(value) if isinstance(value, bool | int | float | list | dict) else str(value)  # such as a date


# ---------------------------------------------------------------------------------------------------------------------
# Parquet


class _Unfit(Exception):
    """A column has no type of its own. The argument is its name."""


def _write_parquet(path: Path, columns: Sequence[str], rows: Rows) -> None:
    as_text = set[str]()
    while True:
        types = _types(columns, rows(), as_text)
        try:
            _write_groups(path, types, rows(), as_text)
            return
        except _Unfit as unfit:  # such as whole numbers that are too large beside fractions
            as_text.add(str(unfit))


def _types(columns: Sequence[str], rows: Iterable[dict[str, Any]], as_text: set[str]) -> dict[str, Any]:
    """The type of each column; those that have none are added to `as_text`."""
    arrow, _ = need_pyarrow()
    types = {name: arrow.null() for name in columns}
    for some in _parts(rows, ROWS_AT_ONCE):
        for name in columns:
            if name in as_text or (types[name] == arrow.string() and all(type(r.get(name)) is str for r in some)):
                continue
            try:
                values = [_clean(row.get(name)) for row in some]
                found = arrow.infer_type(values)
                if arrow.types.is_floating(found) and any(isinstance(value, bool) for value in values):
                    raise TypeError("true would become 1.0")
                either = [arrow.schema([("either", kind)]) for kind in (types[name], found)]
                types[name] = arrow.unify_schemas(either, promote_options="permissive").field(0).type
            except (arrow.ArrowException, OverflowError, TypeError):
                as_text.add(name)
    settled = {name: None if name in as_text else _storable(kind) for name, kind in types.items()}
    as_text.update(name for name, kind in settled.items() if kind is None)
    return {name: kind or arrow.string() for name, kind in settled.items()}


def _storable(kind: Any) -> Any:
    """The type with text in place of what is always null; None if parquet cannot store it."""
    arrow, _ = need_pyarrow()
    if arrow.types.is_null(kind):
        return arrow.string()
    if arrow.types.is_list(kind):
        inner = _storable(kind.value_type)
        return arrow.list_(inner) if inner else None
    if arrow.types.is_struct(kind):
        fields = [(field.name, _storable(field.type)) for field in kind]
        return arrow.struct(fields) if fields and all(inner for _, inner in fields) else None
    return kind


def _write_groups(path: Path, types: dict[str, Any], rows: Iterable[dict[str, Any]], as_text: set[str]) -> None:
    arrow, parquet = need_pyarrow()
    schema = arrow.schema([(_clean(name), kind) for name, kind in types.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        for some in _parts(rows, GROUP_ROWS):
            arrays = []
            for name, kind in types.items():
                values = (row.get(name) for row in some)
                cells = [_clean(None if v is None else _cell(v) if name in as_text else v) for v in values]
                try:
                    arrays.append(arrow.array(cells, kind))
                except (arrow.ArrowException, OverflowError, TypeError):
                    raise _Unfit(name) from None
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _parts(rows: Iterable[dict[str, Any]], limit: int) -> Iterator[list[dict[str, Any]]]:
    """Rows in groups of `limit`, or fewer if they are long."""
    part, size = list[dict[str, Any]](), 0
    for row in rows:
        part.append(row)
        size += sum(len(value) if isinstance(value, str) else 8 for value in row.values())
        if len(part) == limit or size > GROUP_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


def _clean(value: Any) -> Any:
    """The value without half surrogate pairs, wherever they are nested."""
    if isinstance(value, str):
        return value if value.isascii() or not HALF.search(value) else HALF.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    return value
