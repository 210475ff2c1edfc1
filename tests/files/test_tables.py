"""Tables are written so that the usual readers read back the same values, in the same bytes every time."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.errors import UserError
from keel.files.tables import check_kind, write_table

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FIXTURE = [HealthCheck.function_scoped_fixture]


def write(path: Path, columns: list[str], rows: list[dict[str, Any]]) -> Path:
    path.unlink(missing_ok=True)
    write_table(path, path, columns, lambda: iter(rows))
    return path


@settings(deadline=None, max_examples=60, suppress_health_check=FIXTURE)
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES), min_size=1, max_size=6))
def test_jsonl_has_every_value_and_csv_every_text(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    lines = write(tmp_path / "t.jsonl", ["a", "b", "c"], rows).read_bytes().split(b"\n")
    assert [json.loads(line) for line in lines[:-1]] == rows
    with write(tmp_path / "t.csv", ["a", "b", "c"], rows).open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, strict=True))
    assert len(found) == len(rows)
    for row, given_row in zip(found, rows, strict=True):
        for name, cell in row.items():
            value = given_row.get(name)
            assert cell == (value if isinstance(value, str) else "" if value is None else cell)
            assert isinstance(value, str) or value is None or json.loads(cell) == value


@settings(deadline=None, max_examples=60, suppress_health_check=FIXTURE)
@given(st.lists(st.fixed_dictionaries({"a": VALUES, "b": TEXTS, "c": st.integers(0, 9) | st.none()}), min_size=1))
def test_parquet_has_every_value_in_a_type_that_fits_or_as_text(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = write(tmp_path / "t.parquet", ["a", "b", "c"], rows)
    found = pyarrow.parquet.read_table(path).to_pylist()
    assert [row["b"] for row in found] == [row["b"] for row in rows]
    assert [row["c"] for row in found] == [row["c"] for row in rows]
    for row, given_row in zip(found, rows, strict=True):
        assert same(row["a"], given_row["a"]), (row["a"], given_row["a"])


def same(found: Any, wanted: Any) -> bool:
    """The value, or its JSON as text; a structure may have keys of other rows, which are null."""
    if isinstance(found, str) and not isinstance(wanted, str):
        return bool(json.loads(found) == wanted)
    if isinstance(found, dict) and isinstance(wanted, dict):
        return all(same(value, wanted.get(key)) for key, value in found.items()) and set(wanted) <= set(found)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return (type(found) is type(wanted) and found == wanted) or (isinstance(found, float) and found == wanted)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl.gz", "t.parquet"])
def test_the_same_rows_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    rows = [{"a": f"text {n}", "b": {"x": n / 7}} for n in range(5000)]
    one, other = tmp_path / name, tmp_path / "elsewhere" / name
    other.parent.mkdir()
    for path in (one, other):
        write(path, ["a", "b"], rows)
    assert one.read_bytes() == other.read_bytes()


def test_polars_reads_what_is_written(tmp_path: Path) -> None:
    rows = [{"a": 'x,"y"\nz\r', "n": n, "p": {"yes": 0.25, "no": 0.75}, "error": None} for n in range(3)]
    columns = list(rows[0])
    assert polars.read_csv(write(tmp_path / "t.csv", columns, rows))["a"].to_list() == [row["a"] for row in rows]
    assert polars.read_ndjson(write(tmp_path / "t.jsonl", columns, rows)).to_dicts() == rows
    assert polars.read_parquet(write(tmp_path / "t.parquet", columns, rows)).to_dicts() == rows


def test_bytes_that_were_not_unicode_become_replacement_characters(tmp_path: Path) -> None:
    rows = [{"a\udcff": "caf\udce9", "b": ["\ud800", {"k": "\udfff"}]}]
    columns = list(rows[0])
    (line,) = write(tmp_path / "t.jsonl", columns, rows).read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {"a\ufffd": "caf\ufffd", "b": ["\ufffd", {"k": "\ufffd"}]}
    assert write(tmp_path / "t.csv", columns, rows).read_text(encoding="utf-8").startswith("a\ufffd,b\ncaf\ufffd,")
    table = pyarrow.parquet.read_table(write(tmp_path / "t.parquet", columns, rows))
    assert table.column_names == ["a\ufffd", "b"] and table["a\ufffd"].to_pylist() == ["caf\ufffd"]


def test_what_no_type_can_hold_is_text(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        for n in range(5000):  # the odd ones come after the types of the first rows are known
            odd = n == 4999
            yield {"large": 2**70 if odd else n, "mixed": "x" if odd else n, "late": [n] if odd else None, "empty": {}}

    write_table(tmp_path / "t.parquet", tmp_path / "t.parquet", ["large", "mixed", "late", "empty", "never"], rows)
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    last = table.slice(4999).to_pylist()[0]
    assert last == {"large": str(2**70), "mixed": "x", "late": [4999], "empty": "{}", "never": None}
    assert table["large"][7].as_py() == "7" and table["mixed"][7].as_py() == "7"


def test_numbers_that_are_no_json_become_null(tmp_path: Path) -> None:
    (line,) = write(tmp_path / "t.jsonl", ["a"], [{"a": [math.inf, math.nan, 1.5]}]).read_text().splitlines()
    assert json.loads(line) == {"a": [None, None, 1.5]}


def test_a_gz_is_what_its_name_says(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv.gz", ["a"], [{"a": "海鸥"}])
    assert gzip.decompress(path.read_bytes()).decode() == "a\n海鸥\n"
    with gzip.open(io.BytesIO(path.read_bytes())) as file:
        assert file.read()


@pytest.mark.parametrize("name", ["t", "t.txt", "t.gz", "t.parquet.gz", "t.csv.zip"])
def test_other_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="choose such a name"):
        check_kind(tmp_path / name)
