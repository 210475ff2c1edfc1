"""Next-sentence prediction (Devlin et al. 2018): does segment B follow segment A, or is it from another document?

In: rows packed as pairs; the packer draws the label, because it decides which text goes into a row. Out: loss and
accuracy of a binary classifier on the pooled [CLS] vector: 0 follows, 1 random, as in the published checkpoints.
"""

from __future__ import annotations

from keel.configs import ObjectiveConfig
from keel.objectives._pair_prediction import PairPrediction
from keel.values import ObjectiveNeeds


class NextSentenceConfig(ObjectiveConfig):
    pass


class NextSentence(PairPrediction):
    name = "next_sentence"
    needs = ObjectiveNeeds(packing="pairs", vectors="rows")
    Config = NextSentenceConfig
