"""Pearson's and Spearman's correlation of two lists of numbers.

In: two lists or arrays of numbers, of equal length. Out: a float in -1 .. 1.

Notable choice: if the correlation is undefined (fewer than two pairs, a constant list, a nan) the result is nan,
without a warning: a model that predicts the same for every input is normal early in training.
"""

from __future__ import annotations

from math import nan

import numpy as np
from numpy.typing import ArrayLike


def pearson(a: ArrayLike, b: ArrayLike) -> float:
    """How close the pairs are to a straight line. Also nan if a number is infinite."""
    one, other = _pairs(a, b)
    if not len(one) or not np.isfinite(one).all() or not np.isfinite(other).all():
        return nan
    one, other = _centred(one), _centred(other)
    spread = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(np.clip(one @ other / spread, -1, 1)) if spread else nan


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Pearson's correlation of the ranks, where equal numbers share their mean rank."""
    one, other = _pairs(a, b)
    if np.isnan(one).any() or np.isnan(other).any():
        return nan
    return pearson(_ranks(one), _ranks(other))


def _pairs(a: ArrayLike, b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.asarray(a, dtype=np.float64).ravel(), np.asarray(b, dtype=np.float64).ravel()
    if len(one) != len(other):
        raise ValueError(f"the two lists must have the same length, found {len(one)} and {len(other)}")
    return one, other


def _centred(numbers: np.ndarray) -> np.ndarray:
    """The deviations from the mean, after scaling to -1 .. 1: large numbers do not overflow, and equal numbers become 1
    and deviate by exactly 0, although the mean of three times 0.1 is not 0.1."""
    scaled = numbers / (np.abs(numbers).max() or 1)
    return np.asarray(scaled - scaled.mean())


def _ranks(numbers: np.ndarray) -> np.ndarray:
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(counts)
    return np.asarray((last_ranks - (counts - 1) / 2)[places])
