"""Selects the tokens to keep of a text that is longer than a row.

In: the number of tokens of a text and the number that fit. Out: the positions of the tokens in each row.

head       the first tokens
tail       the last tokens
head-tail  both ends (Sun et al. 2019): for texts of up to 800 tokens a quarter of the row is head, beyond that half
windows    all tokens, in overlapping rows

Notable choice: the last window ends with the text and is as long as the others, so that every window has full context.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from keel.configs import Options

STRATEGIES = ("head", "tail", "head-tail", "windows")
FULL_ROOM = 510  # the row for which the paper gives its head sizes: 512 less [CLS] and [SEP]
SHORT_HEAD, LONG_HEAD, LONG_FROM = 128, 256, 800


class LongText(Options):
    strategy: Literal["head", "tail", "head-tail", "windows"] = "head"
    head: int | None = Field(None, ge=0, description="tokens of the head in head-tail; null: as in the paper")
    overlap: float = Field(0.25, ge=0, lt=1, description="fraction of a window that the next one repeats")

    def places(self, length: int, room: int) -> list[np.ndarray]:
        """The positions of the kept tokens, one array per row. A text that fits is one row, whatever the strategy."""
        if length <= room:
            return [np.arange(length)]
        if self.strategy == "head":
            return [np.arange(room)]
        if self.strategy == "tail":
            return [np.arange(length - room, length)]
        if self.strategy == "head-tail":
            head = self._head(length, room)
            return [np.concatenate([np.arange(head), np.arange(length - (room - head), length)])]
        return [np.arange(start, start + room) for start in window_starts(length, room, self.overlap)]

    def _head(self, length: int, room: int) -> int:
        if self.head is not None:
            return min(self.head, room)
        return round((SHORT_HEAD if length <= LONG_FROM else LONG_HEAD) * room / FULL_ROOM)


def window_starts(length: int, room: int, overlap: float) -> list[int]:
    """The first token of each window of `room` tokens; together they cover `length` tokens."""
    stride = max(1, room - round(overlap * room))
    starts = list(range(0, max(1, length - room), stride))
    return starts if length <= room else [*starts, length - room]


def share_room(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each of two texts are kept: the longer one is truncated first."""
    if first + second <= room:
        return first, second
    short = min(first, second, room // 2)
    return (short, room - short) if first <= second else (room - short, short)
