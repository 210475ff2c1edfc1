"""Two neighbouring stretches of a text, half of them swapped (Lan et al. 2019), for sentence-order prediction.

In: the sentence bounds of some documents. Out: a plan whose answers say which rows are swapped (`sentence_order`).

A row takes sentences of one document until the length is full, cut at a random sentence into A and B. A sentence that
is alone in its row is cut in the middle; one of a single token is left out, for it has no order.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from keel.corpus.plan import Plan, aim, cut_pair
from keel.corpus.store import Corpus

SPECIALS = 3  # [CLS] A [SEP] B [SEP]


class OrderPacker:
    def __init__(self, corpus: Corpus, length: int, short_share: float) -> None:
        self.corpus = corpus
        self.room = length - SPECIALS
        self.short_share = short_share

    def plan(self, documents: np.ndarray, random: np.random.Generator) -> Plan:
        rows: list[tuple[int, int, int, int, int]] = []
        for document in documents:
            bounds = self.corpus.sentence_bounds(int(document)).tolist()
            first, last = 0, len(bounds) - 1
            while first < last:
                target = aim(self.room, self.short_share, random)
                stop = min(bisect_left(bounds, bounds[first] + target, first + 1), last)
                start, end = bounds[first], bounds[stop]
                alone = stop - first == 1
                cut = (start + end) // 2 if alone else bounds[int(random.integers(first + 1, stop))]
                first = stop
                if cut > start:
                    a, b, c, d = cut_pair(start, cut, cut, end, self.room, random)
                    swapped = random.random() < 0.5
                    rows.append((c, d, a, b, 1) if swapped else (a, b, c, d, 0))
        return Plan.of_pairs(rows, "sentence_order")
