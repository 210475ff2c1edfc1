"""Groups hold every item once, in order, and are as full as the limit allows."""

from __future__ import annotations

from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from keel.batching import groups


@given(st.lists(st.text(max_size=12), max_size=40), st.integers(0, 20))
def test_groups_keep_the_order_and_the_limit(items: list[str], limit: int) -> None:
    found = list(groups(items, len, limit))
    assert [item for group in found for item in group] == items
    for group in found:
        assert len(group) == 1 or sum(map(len, group)) <= limit
    for group, after in pairwise(found):
        assert sum(map(len, group)) + len(after[0]) > limit, "the next item would have fitted"


def test_no_items_give_no_groups() -> None:
    assert list(groups([], len, 10)) == []


def test_an_item_larger_than_the_limit_is_alone() -> None:
    assert list(groups([1, 9, 1, 1], int, 3)) == [[1], [9], [1, 1]]


def test_groups_are_lazy() -> None:
    assert next(groups(count(1), int, 6)) == [1, 2, 3]
