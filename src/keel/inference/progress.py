"""How far the rows of a file have been computed.

In: the rows done so far, and the line that they reach. Out: a value for a progress bar or a log line, with the speed
and the time left, both of this run: a resumed run does not count what was done before.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class RowProgress:
    """`done` and `total` are lines of the file, or rows where lines mean nothing; a total of 0 is not known."""

    done: int
    total: int
    rows: int
    rows_per_second: float
    left: str


def skip(rows: Iterator[T], count: int) -> Iterator[T]:
    """The rows after the first `count`, which are read now: reading them is no part of the speed."""
    deque(islice(rows, count), maxlen=0)
    return rows


def row_progress(
    say: Callable[[Any], None], total: int, rows_before: int, clock: Callable[[], float] = time.monotonic
) -> Callable[[int, int], None]:
    """A function to be called with the rows done and the line reached; it passes a `RowProgress` to `say`."""
    began = clock()

    def tell(rows: int, line: int) -> None:
        speed = (rows - rows_before) / max(clock() - began, 1e-9)
        done = line if total else rows
        rows_in_all = rows * total / max(done, 1)  # as far as rows have equally many lines
        left = int((rows_in_all - rows) / speed) if total and speed > 0 else 0
        clocked = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
        say(RowProgress(done, total, rows, speed, clocked if total else "?"))

    return tell
