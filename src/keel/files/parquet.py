"""Reads the rows of .parquet files (extra `parquet`).

In: a file. Out: its rows one by one, with named fields; values keep their types.

Notable choice: a group of rows is in memory at once, not the file; only the columns that are wanted are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.files.tables import need_pyarrow

GROUP = 1000  # rows


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns."""
    names: list[str] = _open(path).schema_arrow.names
    return names


def parquet_size(path: Path) -> int:
    """The number of rows."""
    rows: int = _open(path).metadata.num_rows
    return rows


def parquet_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows; `columns` that the file does not have are left out."""
    file = _open(path)
    wanted = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
    arrow, _ = need_pyarrow()
    try:
        for group in file.iter_batches(GROUP, columns=wanted):
            yield from group.to_pylist()
    except (arrow.ArrowException, OSError) as problem:
        raise _damaged(path, problem) from None


def _open(path: Path) -> Any:
    arrow, parquet = need_pyarrow()
    try:
        return parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as problem:
        raise _damaged(path, problem) from None


def _damaged(path: Path, problem: Exception) -> UserError:
    reason = " ".join(str(problem).split())[:120]
    return UserError(f"{path}: cannot be read as .parquet ({reason}); write the file again")
