"""Segment pairs as BERT made them (Devlin et al. 2018, create_instances_from_document, told anew).

In: the sentence bounds of some documents. Out: a plan whose answers say which rows are random (`next_sentence`).

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

import numpy as np

from keel.corpus.plan import Plan, aim, cut_pair
from keel.corpus.store import Corpus

SPECIALS = 3  # [CLS] A [SEP] B [SEP]
TRIES = 20  # draws of another document before all are looked through


class PairPacker:
    """Plans pairs for a set of documents; `pool` is where random segments come from."""

    def __init__(self, corpus: Corpus, pool: np.ndarray, length: int, short_share: float, random_share: float) -> None:
        self.corpus = corpus
        self.pool = pool
        self.room = length - SPECIALS
        self.short_share = short_share
        self.random_share = random_share

    def plan(self, documents: np.ndarray, random: np.random.Generator) -> Plan:
        rows: list[tuple[int, int, int, int, int]] = []
        self.debt = 0  # forced random rows not yet made up for
        for document in documents:
            self._pack_document(int(document), random, rows)
        return Plan.of_pairs(rows, "next_sentence")

    def _pack_document(
        self, document: int, random: np.random.Generator, rows: list[tuple[int, int, int, int, int]]
    ) -> None:
        bounds = self.corpus.sentence_bounds(document).tolist()
        last = len(bounds) - 1
        first = 0
        while first < last:
            target = aim(self.room, self.short_share, random)
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
            rows.append((*cut_pair(a_start, a_stop, b_start, b_stop, self.room, random), label))

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
