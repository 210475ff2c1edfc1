"""Rows in memory, in every form that people have them, are the rows of the .jsonl file that holds the same."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import Rejected, UserError
from keel.in_memory import MemoryTable, as_source, is_table
from keel.text.tables import Record, column_names, read_table

ROWS = [{"text": "a fine day", "label": "good"}, {"text": "rain, again", "label": "bad"}, {"text": "海", "label": "1"}]
Pair = namedtuple("Pair", "text label")


def features() -> datasets.Features:
    return datasets.Features({"text": datasets.Value("string"), "label": datasets.Value("string")})


FORMS: dict[str, Any] = {
    "dictionaries": ROWS,
    "tuples": [(row["text"], row["label"]) for row in ROWS],
    "lists": [[row["text"], row["label"]] for row in ROWS],
    "named tuples": [Pair(row["text"], row["label"]) for row in ROWS],
    "columns": {"text": [row["text"] for row in ROWS], "label": [row["label"] for row in ROWS]},
    "columns of arrays": {key: np.array([row[key] for row in ROWS]) for key in ("text", "label")},
    "pandas": pandas.DataFrame(ROWS, index=[7, 7, 3]),
    "polars": polars.DataFrame(ROWS),
    "polars, lazy": polars.DataFrame(ROWS).lazy(),
    "datasets": datasets.Dataset.from_list(ROWS, features()),
    "datasets, streaming": datasets.Dataset.from_list(ROWS, features()).to_iterable_dataset(),
}


def fields(data: Any, columns: tuple[str, ...] = ("text", "label")) -> list[dict[str, Any] | str]:
    rows = read_table(as_source(data, "train"), {name: name for name in columns})
    return [row.fields if isinstance(row, Record) else row.reason for row in rows]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows(form: str) -> None:
    assert fields(FORMS[form]) == ROWS
    assert column_names(as_source(FORMS[form], "train")) == ["text", "label"]


def test_an_iterator_is_read_once_and_kept() -> None:
    source = as_source(iter(ROWS), "train")
    assert fields(source) == fields(source) == ROWS


def test_a_path_stays_a_path(tmp_path: Path) -> None:
    assert as_source(tmp_path / "a.csv", "train") == str(tmp_path / "a.csv")


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = texts | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()


@given(st.lists(st.fixed_dictionaries({"text": texts, "label": values | st.none()}), min_size=1, max_size=8))
def test_rows_are_what_the_jsonl_file_with_them_has(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("rows") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert fields(rows) == fields(str(path))


@given(st.lists(st.fixed_dictionaries({"text": texts, "label": texts | st.none()}), min_size=1, max_size=8))
def test_frames_and_parquet_keep_every_text(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("rows") / "train.parquet"
    frame = pandas.DataFrame(rows)
    frame.to_parquet(path)
    assert fields(frame) == fields(polars.DataFrame(rows, infer_schema_length=None)) == fields(str(path)) == rows


def test_missing_values_of_a_frame_are_none() -> None:
    frame = pandas.DataFrame({"text": ["a", None, "c"], "label": [1.0, float("nan"), 3.0]})
    assert fields(frame) == [{"text": "a", "label": 1.0}, {"text": None, "label": None}, {"text": "c", "label": 3.0}]
    typed = pandas.DataFrame({"text": ["a", pandas.NA], "label": pandas.array([1, None], dtype="Int64")})
    assert fields(typed) == [{"text": "a", "label": 1}, {"text": None, "label": None}]


def test_the_names_of_class_labels_are_read() -> None:
    names = datasets.ClassLabel(names=["O", "B-PER"])
    shape = datasets.Features({"text": datasets.Value("string"), "label": names, "tags": datasets.List(names)})
    data = datasets.Dataset.from_list(
        [{"text": "a", "label": 1, "tags": [0, 1]}, {"text": "b", "label": -1, "tags": []}]
    )
    rows = fields(data.cast(shape), ("label", "tags"))
    assert rows == [{"label": "B-PER", "tags": ["O", "B-PER"]}, {"label": None, "tags": []}]


def test_a_bad_row_is_rejected_with_its_number() -> None:
    table = as_source([("a", "x"), 5, ("b", "y"), ("c", "d", "e", "f"), {"text": "z"}, ("half \ud800", "x")], "train")
    rejected = [str(row) for row in read_table(table, {"text": "text", "label": "label"}) if isinstance(row, Rejected)]
    assert rejected == [
        "<train>, row 2: not a row but an int; give a dictionary, or (text, label)",
        "<train>, row 4: a row of 4 values; name them in a dictionary",
        "<train>, row 5: no key 'label': the record has 'text'",
        "<train>, row 6: not Unicode: half a surrogate pair, \\ud800",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "train: a path, a list of rows, a dictionary of columns, a DataFrame, or a datasets.Dataset is needed"),
        (None, "not a NoneType"),
        (b"bytes", "not a bytes"),
        ({"text": ["a"], "label": ["x", "y"]}, "different lengths ('text' has 1, 'label' has 2)"),
        ({"text": "a"}, "the column 'text' is not a list"),
        (datasets.DatasetDict(test=FORMS["datasets"]), "several data sets ('test'); give one, such as data['test']"),
    ],
)
def test_what_is_no_table_is_said(data: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        as_source(data, "train")
    assert message in str(error.value)


def test_no_rows_are_an_error() -> None:
    with pytest.raises(UserError, match="<train>: there are no rows"):
        read_table(as_source([], "train"), {"text": "text"})


def test_the_fingerprint_follows_the_content() -> None:
    def mark(rows: Any) -> str:
        table = as_source(rows, "train")
        assert isinstance(table, MemoryTable)
        return table.fingerprint

    assert mark(ROWS) == mark(FORMS["pandas"]) == mark(FORMS["tuples"])
    assert mark(ROWS) != mark(ROWS[::-1])
    assert mark(ROWS) != mark([*ROWS[:-1], {"text": "海", "label": 1}])


@pytest.mark.parametrize("form", ["pandas", "polars", "datasets"])
def test_a_column_of_a_frame_is_a_list_of_texts(form: str) -> None:
    column = FORMS[form]["text"]
    assert not is_table(column)
    assert fields(column, ("text",)) == [{"text": row["text"]} for row in ROWS]


def test_lists_of_texts_are_no_tables() -> None:
    assert not is_table(["a", "b"]) and not is_table([("a", "b")])
    assert is_table(ROWS) and is_table(FORMS["pandas"]) and is_table(FORMS["datasets"]) and is_table(FORMS["columns"])
