"""Segment pairs as in BERT (Devlin et al. 2018; a reimplementation of `create_instances_from_document`).

In: the sentence bounds of some documents. Out: a plan whose labels mark the random pairs (`next_sentence`).

A row takes sentences of one document until it is full (one row in ten has a random shorter target length) and splits
them at a random sentence boundary into A and B. In half of the rows B is replaced by text from a random position in
another document; the replaced sentences start the next row. A pair that is too long loses tokens at random ends of its
longer segment.

Notable choice: a row of a single sentence has nothing left for B, so it must be a random pair. The original accepts
this, which shifts the labels towards random, the more so the shorter the documents are. Here each forced random row is
compensated by a later row that was drawn as random and is made consecutive instead, so the labels stay balanced
wherever the text allows it.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from keel.configs import Options
from keel.corpus.row_plan import Packer, RowPlan, cut_pair, sentences_to_fill, target_length

SPECIALS = 3  # [CLS] A [SEP] B [SEP]
TRIES = 20  # random draws of another document before all of them are searched


class PairsConfig(Options):
    short_seq_prob: float = Field(0.1, ge=0, le=1, description="fraction of rows with a random shorter target length")
    random_next_prob: float = Field(0.5, ge=0, le=1, description="fraction of pairs whose B is from another document")


class PairPacker(Packer):
    """Random segments come from `pool`, the documents given to the constructor."""

    Config = PairsConfig

    def plan(self, documents: np.ndarray, random: np.random.Generator) -> RowPlan:
        rows: list[tuple[int, int, int, int, int]] = []
        self._uncompensated = 0  # forced random rows that no later row has compensated yet
        for document in documents:
            self._pack_document(int(document), random, rows)
        return RowPlan.of_pairs(rows, "next_sentence")

    def _pack_document(
        self, document: int, random: np.random.Generator, rows: list[tuple[int, int, int, int, int]]
    ) -> None:
        room = self.length - SPECIALS
        bounds = self.corpus.sentence_bounds(document).tolist()
        first, last = 0, len(bounds) - 1
        while first < last:
            target = target_length(room, self.config.short_seq_prob, random)
            stop = sentences_to_fill(bounds, first, target)
            single = stop - first == 1
            cut = first + 1 if single else int(random.integers(first + 1, stop))
            a_start, a_stop = bounds[first], bounds[cut]
            if self._is_random(single, random):
                b_start, b_stop = self._random_segment(document, max(1, target - (a_stop - a_start)), random)
                first, label = cut, 1
            else:
                b_start, b_stop = bounds[cut], bounds[stop]
                first, label = stop, 0
            rows.append((*cut_pair(a_start, a_stop, b_start, b_stop, room, random), label))

    def _is_random(self, single: bool, random: np.random.Generator) -> bool:
        drawn = random.random() < self.config.random_next_prob
        if single:
            self._uncompensated += not drawn
            return True
        if drawn and self._uncompensated:
            self._uncompensated -= 1
            return False
        return drawn

    def _random_segment(self, document: int, tokens: int, random: np.random.Generator) -> tuple[int, int]:
        """Text of another document. Its content must differ too: a copy of this document would get a wrong label."""
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
        return bounds[first], bounds[sentences_to_fill(bounds, first, tokens)]
