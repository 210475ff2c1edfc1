"""Groups of bounded size: the one place that splits a sequence of items with sizes into batches.

In: items in order, a function that measures one, and a limit. Out: lists of consecutive items.

Notable choice: a group is closed BEFORE the item that would take it past the limit, so `limit` bounds memory, as the
callers (tokenizer calls, inference batches, micro-batches) need. Only a single item larger than the limit exceeds it,
alone in its group. Closing a group AFTER it reaches the limit was rejected: the last item may be of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def groups(items: Iterable[T], size_of: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Consecutive items in lists whose sizes add up to at most `limit`; an item larger than that is a list by itself.

    Lazy: items are read as groups are taken. No group is empty, so an empty input gives no groups.
    """
    group: list[T] = []
    filled = 0
    for item in items:
        size = size_of(item)
        if group and filled + size > limit:
            yield group
            group, filled = [], 0
        group.append(item)
        filled += size
    if group:
        yield group
