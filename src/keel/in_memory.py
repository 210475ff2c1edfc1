"""Labelled data that a Python caller has in memory, as a table that the readers of files can read.

In: a list of rows, a dictionary of columns, a pandas or polars frame, a `datasets.Dataset`, or an iterator of rows.
Out: a `MemoryTable`: rows with named fields, like the objects of a .jsonl file.

A row is a dictionary, a named tuple, a text, or a tuple: (text, label), or (text, pair, label).

Notable choices
- Frames are recognised by the library that defines their class, so that none is imported, or needed.
- A row that is none of these is rejected like a bad line of a file: with its number, counted from 1.
- Numbers and names of labels: a `datasets.ClassLabel` is read as the label's name; NaN and missing values are None.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from keel.errors import UserError

FRAMES = {
    "pandas": ("DataFrame",),
    "polars": ("DataFrame", "LazyFrame"),
    "datasets": ("Dataset", "IterableDataset"),
}
CHUNK = 1000  # rows of a frame that are converted at once
BY_POSITION = {1: ("text",), 2: ("text", "label"), 3: ("text", "pair", "label")}  # the fields of a tuple
FORMS = "a path, a list of rows, a dictionary of columns, a DataFrame, or a datasets.Dataset"


@dataclass(frozen=True)
class MemoryTable:
    """Rows in memory. `name` is used in messages: `<train>, row 3: empty text`."""

    name: str
    items: Sequence[Any]  # rows, in any of the forms above; or a `_Columns`

    def __str__(self) -> str:
        return self.name

    def records(self) -> Iterator[tuple[int, dict[str, Any], str]]:
        """Each row's number, its fields, and the reason if it cannot be used."""
        for number, item in enumerate(self.items, 1):
            fields, reason = _fields(item)
            yield number, fields, reason

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the content."""
        found = hashlib.sha256()
        for _, fields, _ in self.records():
            found.update(json.dumps(fields, ensure_ascii=True, default=repr).encode() + b"\n")
        return found.hexdigest()


Source = str | MemoryTable  # what readers of labelled data accept


def as_source(data: Any, name: str) -> Source:
    """A path as it is; anything else as a table with this name."""
    if isinstance(data, str | MemoryTable):
        return data
    if isinstance(data, os.PathLike):
        return os.fspath(data)
    return MemoryTable(f"<{name}>", _items(data, name))


def is_table(data: Any) -> bool:
    """Whether data has named columns: a frame, a dictionary, a data set, or a list of dictionaries."""
    first = data[0] if isinstance(data, list | tuple) and data else None
    return isinstance(data, Mapping | MemoryTable) or _library(data) is not None or _is_named(first)


def _library(data: Any) -> str | None:
    """The library that a frame or a data set is of; None if it is neither (a column of one is a list of values)."""
    bases = ((base.__module__.partition(".")[0], base.__name__) for base in type(data).__mro__)
    return next((library for library, name in bases if name in FRAMES.get(library, ())), None)


def _items(data: Any, name: str) -> Sequence[Any]:
    library = _library(data)
    if isinstance(data, Mapping):  # also a datasets.DatasetDict
        return list(_of_columns(data, name))
    if library == "datasets":
        return list(_data_set(data))
    if library == "polars":
        return list(_polars(data))
    if library == "pandas":
        return list(_pandas(data))
    if isinstance(data, Iterable) and not isinstance(data, bytes | bytearray):
        return data if isinstance(data, list | tuple) else list(data)
    raise UserError(f"{name}: {FORMS} is needed, not {_article(type(data).__name__)}")


def _of_columns(data: Mapping[Any, Any], name: str) -> Iterator[dict[str, Any]]:
    columns = {str(key): column for key, column in data.items()}
    for key, column in columns.items():
        if _library(column) == "datasets":
            splits = ", ".join(map(repr, columns))
            raise UserError(f"{name}: holds several data sets ({splits}); give one, such as data[{key!r}]")
        if isinstance(column, str | bytes | Mapping) or not isinstance(column, Iterable):
            raise UserError(f"{name}: the column {key!r} is not a list; a dictionary maps names to columns")
    lists = {key: list(column) for key, column in columns.items()}
    lengths = {key: len(column) for key, column in lists.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key!r} has {length:,}" for key, length in lengths.items())
        raise UserError(
            f"{name}: the columns have different lengths ({listed}); each row needs a value in every column"
        )
    for values in zip(*lists.values(), strict=True):
        yield _clean(dict(zip(lists, values, strict=True)))


def _pandas(data: Any) -> Iterator[dict[str, Any]]:
    for start in range(0, len(data), CHUNK):
        for row in data.iloc[start : start + CHUNK].to_dict("records"):
            yield _clean(row)


def _polars(data: Any) -> Iterator[dict[str, Any]]:
    frame = data.collect() if type(data).__name__ == "LazyFrame" else data
    for row in frame.iter_rows(named=True):
        yield _clean(row)


def _data_set(data: Any) -> Iterator[dict[str, Any]]:
    names = {key: _label_names(feature) for key, feature in (data.features or {}).items()}
    for row in data:
        yield {key: _named_label(value, names.get(key)) for key, value in row.items()}


def _label_names(feature: Any) -> list[str] | None:
    """The names of a `ClassLabel`, or of a list of them."""
    inner = feature.feature if type(feature).__name__ in ("List", "Sequence", "LargeList") else feature
    return list(inner.names) if type(inner).__name__ == "ClassLabel" and inner.names else None


def _named_label(value: Any, names: list[str] | None) -> Any:
    if names is None:
        return _plain(value)
    if isinstance(value, list | tuple):
        return [_named_label(one, names) for one in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None  # -1: not labelled


def _fields(item: Any) -> tuple[dict[str, Any], str]:
    """The named fields of a row, and the reason if it cannot be used."""
    if isinstance(item, Mapping):
        return _clean(item), ""
    if _is_named(item):
        return _clean(item._asdict()), ""
    if isinstance(item, str):
        return {"text": item}, ""
    if isinstance(item, list | tuple) and len(item) in BY_POSITION:
        return _clean(dict(zip(BY_POSITION[len(item)], item, strict=True))), ""
    if isinstance(item, list | tuple):
        return {}, f"a row of {len(item)} values; name them in a dictionary"
    return {}, f"not a row but {_article(type(item).__name__)}; give a dictionary, or (text, label)"


def _is_named(item: Any) -> bool:
    """Whether a row has names: a dictionary, or a named tuple."""
    return isinstance(item, Mapping) or (isinstance(item, tuple) and "_asdict" in dir(item))


def _clean(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    """The value as JSON has it: numbers of numpy as numbers, arrays as lists, missing values as None."""
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return _clean(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if type(value).__module__.partition(".")[0] == "numpy":
        return _plain(value.tolist())
    return None if value != value or type(value).__name__ == "NAType" else value


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
