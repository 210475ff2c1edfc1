"""Shared by `full-sentences` and `doc-sentences` (Liu et al. 2019): rows of complete sentences, in one segment.

In: the sentence bounds of some documents. Out: a plan without labels. A sentence that does not fit into the rest of a
row starts the next one; a sentence longer than a row is split. The two packers differ only at the end of a document:
`ends_row`.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right

import numpy as np
from pydantic import Field

from keel.configs import Options
from keel.corpus.row_plan import Packer, RowPlan, target_length


class SentencesConfig(Options):
    short_seq_prob: float = Field(0.1, ge=0, le=1, description="fraction of rows with a random shorter target length")


class SentencePacker(Packer):
    @abstractmethod
    def ends_row(self, left: int) -> bool:
        """Whether the end of a document also ends the row, which has `left` free tokens."""

    def plan(self, documents: np.ndarray, random: np.random.Generator) -> RowPlan:
        room = self.length - 1  # without [CLS]
        ranges: list[tuple[int, int]] = []
        first = [0]

        def start_row() -> int:
            """Closes the open row, if it has any text, and returns the target length of the next."""
            if len(ranges) > first[-1]:
                first.append(len(ranges))
            return target_length(room, self.config.short_seq_prob, random)

        left = start_row()
        for document in documents:
            bounds = self.corpus.sentence_bounds(int(document)).tolist()
            place = bounds[0]
            while place < bounds[-1]:
                fitting = bounds[bisect_right(bounds, place + left - 1) - 1]  # one token is for the [SEP]
                if fitting <= place and len(ranges) > first[-1]:
                    left = start_row()
                    continue
                stop = fitting if fitting > place else min(place + left - 1, bounds[-1])
                ranges.append((place, stop))
                left -= stop - place + 1
                place = stop
                if place < bounds[-1]:
                    left = start_row()
            if self.ends_row(left):
                left = start_row()
        start_row()
        return RowPlan(np.array(ranges, np.int64).reshape(-1, 2), np.array(first), segmented=False)
