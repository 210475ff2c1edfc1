"""Choice columns: found by their names, in the order of their numbers, however many."""

from __future__ import annotations

from pathlib import Path

from keel.tasks.choose import Choose, ChooseConfig
from keel.text.labelled import LabelledData
from keel.values import Examples


def test_columns_are_in_numeric_order_and_none_is_left_out(tmp_path: Path) -> None:
    """A label is a choice's number, so the order of columns in the file must not matter, nor a second digit."""
    numbers = [11, 2, 0, 10, 1, *range(3, 10)]
    header = ["text", *(f"ending{n}" for n in numbers), "label"]
    row = ["why", *(f"because {n}" for n in numbers), "10"]
    path = tmp_path / "train.tsv"
    path.write_text("\t".join(header) + "\n" + "\t".join(row) + "\n")
    (example,) = Examples.of(Choose(ChooseConfig(), LabelledData()).open(str(path))).examples
    assert example.choices == tuple(f"because {n}" for n in range(12))
    assert example.choices[example.answer] == "because 10"
