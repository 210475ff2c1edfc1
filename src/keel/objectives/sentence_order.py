"""Sentence-order prediction (Lan et al. 2019): are two neighbouring stretches of a text in their right order?

In: rows packed as `order`; the packer draws the answer, because it decides which stretch comes first. Out: loss and
accuracy of a two-way choice on the pooled row: 0 as written, 1 swapped, as in the published checkpoints. Unlike with
next-sentence prediction, the topic of the two gives nothing away.
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
