"""Two consecutive segments of a document, half of them swapped (Lan et al. 2019), for sentence-order prediction.

In: the sentence bounds of some documents. Out: a plan whose labels mark the swapped rows (`sentence_order`).

A row takes sentences of one document until it is full and splits them at a random sentence boundary into A and B. A
single sentence that fills a row is split in the middle; a sentence of one token is skipped, because it has no order.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from keel.configs import Options
from keel.corpus.row_plan import Packer, RowPlan, cut_pair, sentences_to_fill, target_length

SPECIALS = 3  # [CLS] A [SEP] B [SEP]


class OrderConfig(Options):
    short_seq_prob: float = Field(0.1, ge=0, le=1, description="fraction of rows with a random shorter target length")


class OrderPacker(Packer):
    Config = OrderConfig

    def plan(self, documents: np.ndarray, random: np.random.Generator) -> RowPlan:
        room = self.length - SPECIALS
        rows: list[tuple[int, int, int, int, int]] = []
        for document in documents:
            bounds = self.corpus.sentence_bounds(int(document)).tolist()
            first, last = 0, len(bounds) - 1
            while first < last:
                stop = sentences_to_fill(bounds, first, target_length(room, self.config.short_seq_prob, random))
                start, end = bounds[first], bounds[stop]
                single = stop - first == 1
                cut = (start + end) // 2 if single else bounds[int(random.integers(first + 1, stop))]
                first = stop
                if cut > start:
                    a, b, c, d = cut_pair(start, cut, cut, end, room, random)
                    swapped = random.random() < 0.5
                    rows.append((c, d, a, b, 1) if swapped else (a, b, c, d, 0))
        return RowPlan.of_pairs(rows, "sentence_order")
