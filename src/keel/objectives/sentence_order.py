"""Sentence-order prediction (Lan et al. 2019): do two neighbouring stretches of a text stand in their right order?

In: rows packed as `order`; the packer drew the answer, because it decides which stretch comes first. Out: loss and
accuracy of a two-way choice on the pooled row: 0 as written, 1 swapped, as in the published checkpoints. Unlike with
next-sentence prediction, the topic of the two gives nothing away.
"""

from __future__ import annotations

from keel.objectives.next_sentence import NextSentence, NextSentenceConfig


class SentenceOrderConfig(NextSentenceConfig):
    pass


class SentenceOrder(NextSentence):
    name = "sentence_order"
    packing = "order"
    Config = SentenceOrderConfig
