"""Sentence-order prediction (Lan et al. 2019): are two consecutive segments of a text in the original order?

In: rows packed as `order`; the packer draws the label, because it decides which segment comes first. Out: loss and
accuracy of a binary classifier on the pooled row: 0 original, 1 swapped, as in the published checkpoints. Unlike in
next-sentence prediction, the topic gives no clue.
"""

from __future__ import annotations

from keel.configs import ObjectiveConfig
from keel.objectives._pair_prediction import PairPrediction
from keel.values import ObjectiveNeeds


class SentenceOrderConfig(ObjectiveConfig):
    pass


class SentenceOrder(PairPrediction):
    name = "sentence_order"
    needs = ObjectiveNeeds(packing="order", vectors="rows")
    Config = SentenceOrderConfig
