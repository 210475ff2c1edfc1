"""Rows before their tokens are read: token ranges of a corpus, and the labels that the packer drew.

In: documents, from a stream. Out: a `RowPlan`, made by a packer (one file each in `packers/`). A planned row is a
handful of numbers: no token is read until a batch needs it.

Shapes: N rows, K token ranges over all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from keel.configs import Options
from keel.corpus.store import Corpus


@dataclass(frozen=True)
class RowPlan:
    """Row i is [CLS], followed by the ranges first[i] to first[i + 1], with a [SEP] after each."""

    ranges: np.ndarray  # (K, 2) int64: global token offsets
    first: np.ndarray  # (N + 1,) int64
    answers: dict[str, np.ndarray] = field(default_factory=dict)  # (N,) each
    segmented: bool = True  # whether the ranges are segments 0 and 1, or all one text

    @cached_property
    def lengths(self) -> np.ndarray:
        """(N,): the tokens of each row, specials included."""
        sizes = np.concatenate([[0], np.cumsum(self.ranges[:, 1] - self.ranges[:, 0] + 1)])
        return sizes[self.first[1:]] - sizes[self.first[:-1]] + 1

    def __len__(self) -> int:
        return len(self.first) - 1

    def row(self, number: int) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in self.ranges[self.first[number] : self.first[number + 1]]]

    @staticmethod
    def of_pairs(rows: list[tuple[int, int, int, int, int]], answer: str) -> RowPlan:
        """From (start of A, stop of A, start of B, stop of B, label) of each row; `answer` names the label."""
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        return RowPlan(table[:, :4].reshape(-1, 2), np.arange(0, 2 * len(table) + 1, 2), {answer: table[:, 4]})


class Packer(ABC):
    """How documents become rows. `data.packing: NAME` in a recipe selects the class in `packers/NAME.py`.

    `documents` in the constructor is the pool that text of other documents may be drawn from: all training documents,
    or all held-out ones. `length` is the length of a full row in tokens, specials included.
    """

    Config: type[Options]

    def __init__(self, config: Any, corpus: Corpus, documents: np.ndarray, length: int) -> None:
        self.config = config
        self.corpus = corpus
        self.pool = documents
        self.length = length

    @abstractmethod
    def plan(self, documents: np.ndarray, random: np.random.Generator) -> RowPlan:
        """The rows of these documents; equal for equal states of `random`."""


def target_length(room: int, short_seq_prob: float, random: np.random.Generator) -> int:
    """The number of tokens to fill a row with: `room`, or with probability `short_seq_prob` a random smaller number."""
    return int(random.integers(2, room + 1)) if random.random() < short_seq_prob else room


def sentences_to_fill(bounds: list[int], first: int, tokens: int) -> int:
    """The sentence to stop before, so that those from `first` on reach `tokens` tokens; at least one sentence, and none
    past the document's end. `bounds` are the document's sentence bounds (`Corpus.sentence_bounds`)."""
    return min(bisect_left(bounds, bounds[first] + tokens, first + 1), len(bounds) - 1)


def cut_pair(a: int, b: int, c: int, d: int, room: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Truncates the segments [a, b) and [c, d) to `room` tokens in all.

    Equivalent to removing single tokens from a random end of the longer segment until the pair fits (as BERT does), but
    with one binomial draw per segment instead of one draw per token.
    """
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
