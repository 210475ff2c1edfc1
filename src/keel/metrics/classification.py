"""How well were labels guessed: accuracy, F1, Matthews' correlation, calibration; one label per example or many.

In: gold and guessed labels, lists or arrays of one length; integers 0 .. labels-1, or (N, labels) booleans for the
multi-label functions. Out: plain floats, as fractions, not percent.

Notable choices
- The figures are scikit-learn's with `labels=range(labels), zero_division=0`. So macro F1 is the mean over ALL labels:
  one that occurs in neither gold nor guessed counts as 0. (scikit-learn without `labels=` leaves such a label out, and
  a model's figure then depends on what it happens to guess.)
- Of nothing, a mean (accuracy, calibration error) is nan, and a ratio (precision, recall, F1, Matthews) is 0.
- Unequal shapes are an error: numpy would broadcast (N, 1) against (N,) and return a plausible number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Found:
    """What was found of the things to find: one label's, or one entity type's, figures."""

    precision: float
    recall: float
    f1: float
    support: int  # how many there are in gold

    @staticmethod
    def of(right: int, guessed: int, gold: int) -> Found:
        return Found(_ratio(right, guessed), _ratio(right, gold), _ratio(2 * right, guessed + gold), int(gold))


@dataclass(frozen=True)
class F1Scores:
    per_label: tuple[Found, ...]
    macro: float  # mean of the labels' F1
    micro: float  # F1 of the labels' summed counts


@dataclass(frozen=True)
class Bin:
    """The guesses of about one confidence. Calibrated: `accuracy` equals `confidence`. Both are nan if `count` is 0."""

    confidence: float
    accuracy: float
    count: int


def accuracy(gold: ArrayLike, guessed: ArrayLike) -> float:
    """The fraction of labels that are right; nan of nothing."""
    gold, guessed = _alike(gold, guessed)
    return float((gold == guessed).mean()) if gold.size else nan


def confusion(gold: ArrayLike, guessed: ArrayLike, labels: int) -> np.ndarray:
    """(labels, labels) counts: rows gold, columns guessed."""
    gold, guessed = _alike(gold, guessed)
    for given in (gold, guessed):
        # Without this, a padding label such as -100 would be counted in another label's cell.
        if given.size and not 0 <= given.min() <= given.max() < labels:
            raise ValueError(f"labels must be 0 .. {labels - 1}, found {given.min()} .. {given.max()}")
    cells = gold.astype(np.int64) * labels + guessed.astype(np.int64)
    return np.bincount(cells.ravel(), minlength=labels * labels).reshape(labels, labels)


def f1_scores(gold: ArrayLike, guessed: ArrayLike, labels: int) -> F1Scores:
    """Precision, recall and F1 of every label, and their averages; zeros of nothing."""
    table = confusion(gold, guessed, labels)
    return _f1_scores(table.diagonal(), table.sum(axis=0), table.sum(axis=1))


def matthews(gold: ArrayLike, guessed: ArrayLike) -> float:
    """Matthews' correlation for any number of labels (Gorodkin 2004); 0 if either side is all one label, or empty."""
    gold, guessed = _alike(gold, guessed)
    names, places = np.unique(np.concatenate([gold.ravel(), guessed.ravel()]), return_inverse=True)
    table = confusion(places[: gold.size], places[gold.size :], len(names)).astype(np.float64)
    in_gold, in_guessed, total = table.sum(axis=1), table.sum(axis=0), table.sum()
    spread = sqrt(total**2 - in_gold @ in_gold) * sqrt(total**2 - in_guessed @ in_guessed)
    return _ratio(table.trace() * total - in_gold @ in_guessed, spread)


def calibration(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> tuple[float, list[Bin]]:
    """Expected calibration error (Guo et al. 2017), and its bins; nan of nothing.

    Bin i of n holds the confidences in (i/n, (i+1)/n]. An exact 0, which the paper leaves out, is in the first bin.
    Empty bins are listed too, so that a chart has its places.
    """
    confidence, correct = _alike(confidence, correct)
    inner_edges = np.linspace(0, 1, bins + 1)[1:-1]
    bin_of = np.searchsorted(inner_edges, confidence, side="left")
    counts = np.bincount(bin_of, minlength=bins)
    confidence_sums = np.bincount(bin_of, weights=confidence, minlength=bins)
    correct_sums = np.bincount(bin_of, weights=correct, minlength=bins)
    listed = [
        Bin(float(sure / count), float(right / count), int(count)) if count else Bin(nan, nan, 0)
        for sure, right, count in zip(confidence_sums, correct_sums, counts, strict=True)
    ]
    error = float(np.abs(confidence_sums - correct_sums).sum() / counts.sum()) if counts.any() else nan
    return error, listed


def multilabel_f1_scores(gold: ArrayLike, guessed: ArrayLike) -> F1Scores:
    """As `f1_scores`, from (N, labels) booleans: which labels each example has."""
    gold, guessed = (np.atleast_2d(given).astype(bool) for given in _alike(gold, guessed))
    return _f1_scores((gold & guessed).sum(axis=0), guessed.sum(axis=0), gold.sum(axis=0))


def subset_accuracy(gold: ArrayLike, guessed: ArrayLike) -> float:
    """The fraction of examples, rows of (N, labels) booleans, with every label right; nan of nothing."""
    gold, guessed = (given.astype(bool) for given in _alike(gold, guessed))
    return float((gold == guessed).all(axis=1).mean()) if len(gold) else nan


def _f1_scores(right: np.ndarray, guessed: np.ndarray, gold: np.ndarray) -> F1Scores:
    """From each label's counts: right, guessed and in gold."""
    per_label = tuple(Found.of(*counts) for counts in zip(right, guessed, gold, strict=True))
    macro = _ratio(sum(label.f1 for label in per_label), len(per_label))
    return F1Scores(per_label, macro, Found.of(right.sum(), guessed.sum(), gold.sum()).f1)


def _alike(gold: ArrayLike, guessed: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.asarray(gold), np.asarray(guessed)
    if one.shape != other.shape:
        raise ValueError(f"the two sides must have one shape, found {one.shape} and {other.shape}")
    return one, other


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
