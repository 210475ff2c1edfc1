"""Full rows of complete sentences that may cross documents: RoBERTa's FULL-SENTENCES (Liu et al. 2019).

In: the sentence bounds of some documents. Out: a plan without labels. After the end of a document the row continues
with a [SEP] and the next document. Almost no tokens are wasted, at the price of unrelated texts in one row.
"""

from __future__ import annotations

from keel.packers._sentences import SentencePacker, SentencesConfig

TOO_LITTLE_ROOM = 2  # free tokens: one token of the next document and its [SEP] are not worth starting


class FullSentencePacker(SentencePacker):
    Config = SentencesConfig

    def ends_row(self, left: int) -> bool:
        return left <= TOO_LITTLE_ROOM
