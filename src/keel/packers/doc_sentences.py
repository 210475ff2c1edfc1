"""Rows of complete sentences that end with their document: RoBERTa's DOC-SENTENCES (Liu et al. 2019).

In: the sentence bounds of some documents. Out: a plan without labels. The last row of a document may be short; batch
sizes are counted in tokens, so nothing is padded.
"""

from __future__ import annotations

from keel.packers._sentences import SentencePacker, SentencesConfig


class DocSentencePacker(SentencePacker):
    Config = SentencesConfig

    def ends_row(self, left: int) -> bool:
        return True
