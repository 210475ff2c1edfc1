"""Classification: accuracy, F1, Matthews' correlation and calibration, for one label per example or several.

In: gold and predicted labels, lists or arrays of equal length; integers 0 .. labels-1, or (N, labels) booleans for the
multi-label functions. Out: plain floats, as fractions, not percent.

Notable choices
- The results equal scikit-learn's with `labels=range(labels), zero_division=0`. Macro F1 is therefore the mean over ALL
  labels: one that is neither in gold nor predicted counts as 0. (scikit-learn without `labels=` leaves such a label
  out, so that the score of a model depends on which labels it happens to predict.)
- Counts add up, scores do not: a file is evaluated group by group, and scores are computed from the summed counts.
- Without examples, a mean (calibration error) is nan, and a ratio (precision, recall, F1, Matthews) is 0.
- Unequal shapes are an error: numpy would broadcast (N, 1) against (N,) and return a plausible number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class PrecisionRecallF1:
    """The scores of one label or one entity type."""

    precision: float
    recall: float
    f1: float
    support: int  # number of gold occurrences

    @staticmethod
    def of(right: int, guessed: int, gold: int) -> PrecisionRecallF1:
        """From counts: predicted correctly, predicted, and in gold."""
        precision, recall = _ratio(right, guessed), _ratio(right, gold)
        return PrecisionRecallF1(precision, recall, _ratio(2 * right, guessed + gold), int(gold))


@dataclass(frozen=True)
class F1Scores:
    per_label: tuple[PrecisionRecallF1, ...]
    macro: float  # mean F1 of the labels
    micro: float  # F1 of the summed counts


@dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence. Calibrated: `accuracy` equals `confidence`. Both are nan if `count` is 0."""

    confidence: float
    accuracy: float
    count: int


def confusion(gold: ArrayLike, guessed: ArrayLike, labels: int) -> np.ndarray:
    """(labels, labels) counts: rows are gold labels, columns predicted ones."""
    gold, guessed = _alike(gold, guessed)
    for side in (gold, guessed):
        # Otherwise a padding label such as -100 would be counted in the cell of another label.
        if side.size and not 0 <= side.min() <= side.max() < labels:
            raise ValueError(f"labels must be 0 .. {labels - 1}, found {side.min()} .. {side.max()}")
    cells = gold.astype(np.int64) * labels + guessed.astype(np.int64)
    return np.bincount(cells.ravel(), minlength=labels * labels).reshape(labels, labels)


def f1_scores(table: np.ndarray) -> F1Scores:
    """Precision, recall and F1 of every label, and their averages, from `confusion`; zeros without examples."""
    return _f1_scores(table.diagonal(), table.sum(axis=0), table.sum(axis=1))


def matthews(table: np.ndarray) -> float:
    """Matthews' correlation for any number of labels (Gorodkin 2004), from `confusion`; 0 if either side is constant or
    empty."""
    table = table.astype(np.float64)
    in_gold, in_guessed, total = table.sum(axis=1), table.sum(axis=0), table.sum()
    spread = sqrt(total**2 - in_gold @ in_gold) * sqrt(total**2 - in_guessed @ in_guessed)
    return _ratio(table.trace() * total - in_gold @ in_guessed, spread)


class Calibration:
    """Expected calibration error (Guo et al. 2017) and its bins.

    Bin i of n contains the confidences in (i/n, (i+1)/n]. An exact 0, which the paper leaves out, is in the first bin.
    Empty bins are included, so that every chart has the same bins.
    """

    def __init__(self, bins: int = 15) -> None:
        self._sums = np.zeros((3, bins))  # predictions, their confidence, how many are correct

    def update(self, confidence: ArrayLike, correct: ArrayLike) -> None:
        confidence, correct = _alike(confidence, correct)
        bins = self._sums.shape[1]
        bin_of = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence, side="left")
        weights = (np.ones(len(bin_of)), confidence, correct)
        self._sums += [np.bincount(bin_of, weights=weight, minlength=bins) for weight in weights]

    @property
    def bins(self) -> list[Bin]:
        return [
            Bin(float(sure / count), float(right / count), int(count)) if count else Bin(nan, nan, 0)
            for count, sure, right in self._sums.T
        ]

    @property
    def error(self) -> float:
        """nan without examples."""
        counts, confidence, correct = self._sums
        return float(np.abs(confidence - correct).sum() / counts.sum()) if counts.any() else nan


def multilabel_counts(gold: ArrayLike, guessed: ArrayLike) -> np.ndarray:
    """(3, labels) from (N, labels) booleans, which labels each example has: how often each was predicted correctly,
    predicted, and in gold."""
    gold, guessed = (np.atleast_2d(side).astype(bool) for side in _alike(gold, guessed))
    return np.stack([(gold & guessed).sum(axis=0), guessed.sum(axis=0), gold.sum(axis=0)])


def multilabel_f1_scores(counts: np.ndarray) -> F1Scores:
    """Like `f1_scores`, from `multilabel_counts`."""
    return _f1_scores(*counts)


def _f1_scores(right: np.ndarray, guessed: np.ndarray, gold: np.ndarray) -> F1Scores:
    """From the counts of each label: predicted correctly, predicted, and in gold."""
    per_label = tuple(PrecisionRecallF1.of(*counts) for counts in zip(right, guessed, gold, strict=True))
    macro = _ratio(sum(label.f1 for label in per_label), len(per_label))
    return F1Scores(per_label, macro, PrecisionRecallF1.of(right.sum(), guessed.sum(), gold.sum()).f1)


def _alike(gold: ArrayLike, guessed: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.asarray(gold), np.asarray(guessed)
    if one.shape != other.shape:
        raise ValueError(f"gold and predictions must have the same shape, found {one.shape} and {other.shape}")
    return one, other


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
