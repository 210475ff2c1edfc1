"""Budgets of time, as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.training.settings import UNITS, TrainingSettings, seconds


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from("smhd")), min_size=1, max_size=4), st.booleans())
def test_a_budget_is_the_sum_of_its_parts(parts: list[tuple[int, str]], spaces: bool) -> None:
    text = (" " if spaces else "").join(f"{number}{unit}" for number, unit in parts)
    total = sum(number * UNITS[unit] for number, unit in parts)
    if total:
        assert seconds(text) == total
        assert TrainingSettings(budget=text).budget == text
    else:
        with pytest.raises(ValueError):
            seconds(text)


def test_budgets_as_people_write_them() -> None:
    written = {"90s": 90, "45m": 2700, "2h": 7200, "1h30m": 5400, "1.5h": 5400, "1d": 86400}
    assert {text: seconds(text) for text in written} == written


@given(st.text(max_size=8))
def test_any_other_text_is_not_a_budget(text: str) -> None:
    if re.fullmatch(r"(\s*[0-9]+(\.[0-9]+)?[smhd]\s*)+", text):
        return
    with pytest.raises(ValueError, match="time"):
        seconds(text)
