"""Rows before they are read: token ranges of a corpus, and what a packer knows about them.

In: documents, from a stream. Out: a `Plan`, made by one of the packers beside this file. No token is read until a batch
needs it: a row is a handful of numbers.

Shapes: N rows, K ranges of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Plan:
    """Row i is [CLS], then the ranges first[i] to first[i + 1], each with a [SEP] behind it."""

    ranges: np.ndarray  # (K, 2) int64: global token offsets
    first: np.ndarray  # (N + 1,) int64
    answers: dict[str, np.ndarray] = field(default_factory=dict)  # (N,) each
    segmented: bool = True  # whether ranges are segments 0 and 1, or all one text

    @cached_property
    def lengths(self) -> np.ndarray:
        sizes = np.concatenate([[0], np.cumsum(self.ranges[:, 1] - self.ranges[:, 0] + 1)])
        return sizes[self.first[1:]] - sizes[self.first[:-1]] + 1

    def __len__(self) -> int:
        return len(self.first) - 1

    def row(self, number: int) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in self.ranges[self.first[number] : self.first[number + 1]]]

    @staticmethod
    def of_pairs(rows: list[tuple[int, int, int, int, int]], answer: str) -> Plan:
        """From the bounds of A and B, and a label by this name."""
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        return Plan(table[:, :4].reshape(-1, 2), np.arange(0, 2 * len(table) + 1, 2), {answer: table[:, 4]})


class Packer(Protocol):
    def plan(self, documents: np.ndarray, random: np.random.Generator) -> Plan: ...


def cut_pair(a: int, b: int, c: int, d: int, room: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Takes single tokens from a random end of the longer of two segments until the pair fits: in one draw."""
    surplus = (b - a) + (d - c) - room
    if surplus <= 0:
        return a, b, c, d
    difference = (b - a) - (d - c)
    from_longer = min(surplus, abs(difference))
    shared = surplus - from_longer
    lost_a, lost_b = (shared + 1) // 2, shared // 2
    lost_a, lost_b = (lost_a + from_longer, lost_b) if difference > 0 else (lost_a, lost_b + from_longer)
    front_a, front_b = (int(random.binomial(n, 0.5)) if n else 0 for n in (lost_a, lost_b))
    return a + front_a, b - (lost_a - front_a), c + front_b, d - (lost_b - front_b)


def aim(room: int, short_share: float, random: np.random.Generator) -> int:
    """The length a row aims at: all of the room, or now and then a random shorter one."""
    return int(random.integers(2, room + 1)) if random.random() < short_share else room
