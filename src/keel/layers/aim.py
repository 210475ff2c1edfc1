"""Heads that start out looking at a place (docs/decisions/0011).

In: the query and key weights of an attention over vectors whose first columns are waves: sin and cos of position x rate
in turns. Out: the same, so that each head attends to the token a fixed shift away from the first step on. A head's keys
are the waves of a position, its queries the same waves turned by rate x shift; their product is the sum of
cos(rate x (distance - shift)), which is largest at the shift.

Shapes: H heads of size D, W width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

LOOKING = 8  # heads that start out looking somewhere; those beyond start as noise


def beside(heads: int) -> list[int]:
    """-1, +1, -2, +2, ..."""
    return [(head // 2 + 1) * (1 if head % 2 else -1) for head in range(min(heads, LOOKING))]


def behind(heads: int) -> list[int]:
    """-1, -2, ..."""
    return [-head - 1 for head in range(min(heads, LOOKING))]


def around(heads: int) -> list[int]:
    """0, -1, +1, ..."""
    return [0, *beside(heads)][: min(heads, LOOKING)]


@torch.no_grad()
def aim(query: Tensor, key: Tensor, heads: int, shifts: Iterable[int], rates: Tensor, signal: float) -> None:
    """Changes weights (H D, W). `signal`: twice the place's logit, where waves have an amplitude of 1.

    What was drawn stays in a tenth of its size, so that no two heads are exactly alike."""
    size, width = len(query) // heads, query.shape[1]
    even = torch.arange(0, size - 1, 2)
    strength = math.sqrt(signal / math.sqrt(size))
    for head, shift in enumerate(shifts):
        rows, angle = slice(head * size, (head + 1) * size), rates[: len(even)] * shift
        turn, waves = torch.zeros(size, width), torch.zeros(size, width)
        turn[even, even] = turn[even + 1, even + 1] = angle.cos()
        turn[even, even + 1], turn[even + 1, even] = angle.sin(), -angle.sin()
        waves[even, even] = waves[even + 1, even + 1] = torch.ones(len(even))
        query[rows] = 0.1 * query[rows] + strength * turn
        key[rows] = 0.1 * key[rows] + strength * waves
