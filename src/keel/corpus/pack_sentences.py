"""Rows full of sentences (Liu et al. 2019): as many as fit, one after the other, with nothing to compare.

In: the sentence bounds of some documents. Out: a plan. `full-sentences` rows go on with the next document where one
ends, behind a [SEP]; `doc-sentences` rows end with their document. A sentence that does not fit into what is left of a
row starts the next one; one longer than a whole row is cut.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from keel.corpus.plan import Plan, aim
from keel.corpus.store import Corpus

LEAST = 2  # tokens of a document worth a [SEP] of their own at the end of a row


class SentencePacker:
    def __init__(self, corpus: Corpus, length: int, short_share: float, across: bool) -> None:
        self.corpus = corpus
        self.room = length - 1  # beside [CLS]
        self.short_share = short_share
        self.across = across  # whether a row may go on with the next document

    def plan(self, documents: np.ndarray, random: np.random.Generator) -> Plan:
        ranges: list[tuple[int, int]] = []
        first = [0]
        left = aim(self.room, self.short_share, random)

        def end_row() -> int:
            if len(ranges) > first[-1]:
                first.append(len(ranges))
            return aim(self.room, self.short_share, random)

        for document in documents:
            bounds = self.corpus.sentence_bounds(int(document)).tolist()
            place = bounds[0]
            while place < bounds[-1]:
                fitting = bounds[bisect_right(bounds, place + left - 1) - 1]  # one token is the [SEP] behind it
                if fitting <= place and len(ranges) > first[-1]:
                    left = end_row()
                    continue
                stop = fitting if fitting > place else min(place + left - 1, bounds[-1])
                ranges.append((place, stop))
                left -= stop - place + 1
                place = stop
                if place < bounds[-1]:
                    left = end_row()
            if not self.across or left <= LEAST:
                left = end_row()
        end_row()
        return Plan(np.array(ranges, np.int64).reshape(-1, 2), np.array(first), segmented=False)
