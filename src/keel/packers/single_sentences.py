"""One sentence per row, for contrastive objectives such as SimCSE (Gao et al. 2021).

In: the sentence bounds of some documents. Out: a plan without labels. A sentence longer than a row is truncated, as in
SimCSE, which truncates at 32 tokens.

Notable choices
- Nothing is random here: row order and dropout, which makes the two views of a sentence differ, are drawn elsewhere.
- No shorter targets (`short_seq_prob`): sentences already come in all lengths.
- Splitting a long sentence into several rows was rejected: a fragment is not a sentence, and two fragments of the same
  sentence in one batch would be false negatives of each other.
"""

from __future__ import annotations

import numpy as np

from keel.configs import Options
from keel.corpus.row_plan import Packer, RowPlan

SPECIALS = 2  # [CLS] sentence [SEP]


class SingleSentencesConfig(Options):
    pass


class SingleSentencePacker(Packer):
    Config = SingleSentencesConfig

    def plan(self, documents: np.ndarray, random: np.random.Generator) -> RowPlan:
        bounds = [self.corpus.sentence_bounds(int(document)) for document in documents]
        none = np.zeros(0, np.int64)
        starts = np.concatenate([none, *(b[:-1] for b in bounds)])
        stops = np.concatenate([none, *(b[1:] for b in bounds)])
        ranges = np.column_stack([starts, np.minimum(stops, starts + self.length - SPECIALS)])
        return RowPlan(ranges, np.arange(len(ranges) + 1), segmented=False)
