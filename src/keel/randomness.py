"""Randomness as an argument: every random number is a pure function of a seed and of what it is drawn for.

In: a seed and integers that identify a draw (epoch, block, row, position, ...). Out: random numbers, the same on every
machine and in every run. A run that was killed needs no generator state to resume exactly.

Notable choice: a counter-based hash (the finaliser of splitmix64, Steele et al. 2014) instead of generator objects. It
works on arrays, and any number can be computed without the ones before it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class Draw(IntEnum):
    """The purpose of a random number. The first group is hashed with a row's key, the others with the run's seed."""

    MASKED_TOKENS = 1
    MASK_ACTION = 2
    RANDOM_TOKEN = 3
    REPLACEMENT = 4
    SPAN_LENGTH = 5
    NOISE_WORDS = 6

    DOCUMENT_ORDER = 11
    PACKING = 12
    ROW_ORDER = 13
    ROW_KEY = 14
    DROPOUT = 21
    FRESH_WEIGHTS = 31
    EXAMPLE_ORDER = 41
    EXAMPLE_KEY = 42
    STEP_ORDER = 43
    TASK_HEAD = 51
    HELD_OUT_EXAMPLES = 52
    EXAMPLE_SUBSET = 53
    SAMPLED_SOFTMAX = 61


def mix(*parts: int | np.ndarray) -> np.ndarray:
    """Hashes numbers or arrays of numbers (broadcast together) to uint64."""
    with np.errstate(over="ignore"):
        state: np.ndarray = np.zeros((), np.uint64)
        for part in parts:
            word = np.asarray(part).astype(np.uint64)
            state = (state ^ word) * _FIRST + _GOLDEN
            state = (state ^ (state >> np.uint64(30))) * _FIRST
            state = (state ^ (state >> np.uint64(27))) * _SECOND
            state = state ^ (state >> np.uint64(31))
    return np.asarray(state)


def uniform(*parts: int | np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), one per hash."""
    return (mix(*parts) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def seed_of(*parts: int) -> int:
    """A seed for a library's generator (63 bits, never negative)."""
    return int(mix(*parts)) >> 1
