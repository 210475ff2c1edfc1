"""Segment pairs as BERT made them (Devlin et al. 2018, create_instances_from_document, told anew).

In: the sentence bounds of some documents. Out: one line per row: the token ranges of A and B, and whether B follows.
No token is read here; a row is four numbers and a label until a batch needs it.

A row takes sentences of one document until the length is full (one row in ten aims at a random shorter length), cuts
them at a random sentence into A and B, and in half of the rows replaces B by text from a random place of another
document; the sentences that B gave up start the next row. Too long a pair loses tokens at a random end of its longer
segment.

Notable choice: a single sentence has nothing to follow it, so such rows must be random pairs. Left alone (as in the
original) they tilt the labels towards random, the more the shorter the documents; here each forced random row is made
up for by a later row that could have been random, so the labels stay at half and half wherever the text allows it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from keel.corpus.store import Corpus

SPECIALS = 3  # [CLS] A [SEP] B [SEP]
TRIES = 20  # draws of another document before all are looked through


@dataclass(frozen=True)
class Pairs:
    """(N,) arrays of global token offsets; B of a row is always text of one document."""

    a_start: np.ndarray
    a_stop: np.ndarray
    b_start: np.ndarray
    b_stop: np.ndarray
    random: np.ndarray  # (N,) int64: 1 where B is from another document

    @cached_property
    def lengths(self) -> np.ndarray:
        return self.a_stop - self.a_start + self.b_stop - self.b_start + SPECIALS

    def __len__(self) -> int:
        return len(self.random)


class PairPacker:
    """Plans pairs for a set of documents; `pool` is where random segments come from."""

    def __init__(self, corpus: Corpus, pool: np.ndarray, length: int, short_share: float, random_share: float) -> None:
        self.corpus = corpus
        self.pool = pool
        self.room = length - SPECIALS
        self.short_share = short_share
        self.random_share = random_share

    def plan(self, documents: np.ndarray, random: np.random.Generator) -> Pairs:
        rows: list[tuple[int, int, int, int, int]] = []
        self.debt = 0  # forced random rows not yet made up for
        for document in documents:
            self._pack_document(int(document), random, rows)
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        return Pairs(*table.T)

    def _pack_document(
        self, document: int, random: np.random.Generator, rows: list[tuple[int, int, int, int, int]]
    ) -> None:
        bounds = self.corpus.sentence_bounds(document).tolist()
        last = len(bounds) - 1
        first = 0
        while first < last:
            target = self.room
            if random.random() < self.short_share:
                target = int(random.integers(2, self.room + 1))
            stop = min(max(bisect_left(bounds, bounds[first] + target, first + 1), first + 1), last)
            cut = first + 1 if stop - first == 1 else int(random.integers(first + 1, stop))
            a_start, a_stop = bounds[first], bounds[cut]
            alone = stop - first == 1
            if self._is_random(alone, random):
                b_start, b_stop = self._elsewhere(document, max(1, target - (a_stop - a_start)), random)
                first, label = cut, 1
            else:
                b_start, b_stop = bounds[cut], bounds[stop]
                first, label = stop, 0
            rows.append((*self._truncate(a_start, a_stop, b_start, b_stop, random), label))

    def _is_random(self, alone: bool, random: np.random.Generator) -> bool:
        wish = random.random() < self.random_share
        if alone:
            self.debt += not wish
            return True
        if wish and self.debt:
            self.debt -= 1
            return False
        return wish

    def _elsewhere(self, document: int, wanted: int, random: np.random.Generator) -> tuple[int, int]:
        """Text of another document: other by content too, for a copy of this one would be a wrong label."""
        hashes = self.corpus.hashes
        for _ in range(TRIES):
            other = int(self.pool[random.integers(len(self.pool))])
            if hashes[other] != hashes[document]:
                break
        else:  # nearly every document is a copy of this one
            foreign = self.pool[hashes[self.pool] != hashes[document]]
            other = int(foreign[random.integers(len(foreign))]) if len(foreign) else other
        bounds = self.corpus.sentence_bounds(other).tolist()
        first = int(random.integers(len(bounds) - 1))
        stop = min(bisect_left(bounds, bounds[first] + wanted, first + 1), len(bounds) - 1)
        return bounds[first], bounds[stop]

    def _truncate(self, a: int, b: int, c: int, d: int, random: np.random.Generator) -> tuple[int, int, int, int]:
        """Takes single tokens from a random end of the longer segment until the pair fits: in one draw."""
        surplus = (b - a) + (d - c) - self.room
        if surplus <= 0:
            return a, b, c, d
        difference = (b - a) - (d - c)
        from_longer = min(surplus, abs(difference))
        shared = surplus - from_longer
        lost_a, lost_b = (shared + 1) // 2, shared // 2
        lost_a, lost_b = (lost_a + from_longer, lost_b) if difference > 0 else (lost_a, lost_b + from_longer)
        front_a, front_b = (int(random.binomial(n, 0.5)) if n else 0 for n in (lost_a, lost_b))
        return a + front_a, b - (lost_a - front_a), c + front_b, d - (lost_b - front_b)
