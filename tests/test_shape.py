"""The code keeps its shape: small contracts, short functions, rooms one can live in, and a page that tells the truth.

The numbers are those of `tests/shape.py`; where an aim is missed on purpose, the reason is beside it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import shape

ROOT = Path(__file__).parent.parent
REGISTRIES = {"cli/commands", "recipes"}  # one file per member by design: they grow with what Keel can do


@pytest.fixture(scope="module")
def counts() -> dict[str, Any]:
    return shape.static_counts(ROOT)


@pytest.fixture(scope="module")
def steps() -> dict[str, list[str]]:
    return shape.traces(ROOT)


def test_contracts_can_be_held_in_the_head(counts: dict[str, Any]) -> None:
    assert counts["interfaces.py"] <= 220
    for name, members in counts["contracts"].items():
        # A tokenizer has the ids of five special tokens, which are no parts to implement.
        assert members["required"] <= (12 if name == "Tokenizer" else 7), name
        assert members["optional"] <= 4, name


def test_everything_used_is_declared(counts: dict[str, Any]) -> None:
    assert counts["type: ignore"] <= 15
    assert counts["getattr"] + counts["hasattr"] <= 18, (
        "declare the member; these are for other libraries and for keel.testing"
    )


def test_functions_and_rooms_stay_small(counts: dict[str, Any]) -> None:
    assert counts["longest function"][0] <= 60, counts["longest function"]
    files = {n: s for n, s in shape.sources(ROOT).items() if str(Path(n).parent) not in REGISTRIES}
    assert shape.largest_room(files)[0] <= 16, shape.largest_room(files)


def test_the_path_of_a_row_is_the_one_that_the_page_tells(steps: dict[str, list[str]]) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page[page.index("## The path of a row") : page.index("## What each part promises")]
    told: list[list[str]] = []
    for number, file in re.findall(r"^\| (\d+) \| `([\w/.]+)` \|", section, re.MULTILINE):
        if number == "1":
            told.append([])
        told[-1].append(file)
    assert told == [list(dict.fromkeys(entered)) for entered in steps.values()]
