"""What to keep of a text that is longer than a row.

In: how many tokens a text has and how many fit. Out: the places of the tokens of each row.

head       the first ones
tail       the last ones
head-tail  both ends (Sun et al. 2019): a quarter of the row from the head up to 800 tokens, half of it beyond
windows    all of them, in rows that overlap

Notable choice: the last window ends with the text instead of being short, so that every window has full context.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

STRATEGIES = ("head", "tail", "head-tail", "windows")
FULL_ROOM = 510  # the row for which the shares of head-tail were published: 512 less [CLS] and [SEP]
SHORT_HEAD, LONG_HEAD, LONG_FROM = 128, 256, 800


class LongText(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    strategy: Literal["head", "tail", "head-tail", "windows"] = "head"
    head: int | None = Field(None, ge=0, description="tokens of the head in head-tail; null: as published")
    overlap: float = Field(0.25, ge=0, lt=1, description="share of a window that the next one repeats")

    def places(self, length: int, room: int) -> list[np.ndarray]:
        """The kept tokens' places, one array for each row. A text that fits is one whole row, whatever the strategy."""
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
    """Where windows of `room` tokens begin, so that together they cover `length` tokens."""
    stride = max(1, room - round(overlap * room))
    starts = list(range(0, max(1, length - room), stride))
    return starts if length <= room else [*starts, length - room]


def share_room(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each of two texts are kept: the longer one gives way first."""
    if first + second <= room:
        return first, second
    short = min(first, second, room // 2)
    return (short, room - short) if first <= second else (room - short, short)
