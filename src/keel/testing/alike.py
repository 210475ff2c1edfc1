"""Compares results up to rounding (sums taken in a different order). In: two results. Out: whether they are equal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def close(one: Tensor | None, other: Tensor | None, relative: float = 1e-5, absolute: float = 1e-5) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and torch.allclose(one, other, rtol=relative, atol=absolute, equal_nan=True)


def gap(one: Tensor, other: Tensor) -> str:
    """The difference of two tensors, for an error message."""
    if one.shape != other.shape:
        return f"shapes {tuple(one.shape)} and {tuple(other.shape)}"
    return f"largest difference {float((one - other).abs().max()):.2g}"


def alike(one: Any, other: Any) -> bool:
    """Whether two answers are equal; floats may differ by rounding."""
    if isinstance(one, float | np.floating) and isinstance(other, float | np.floating):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and alike(one.tolist(), other.tolist())
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, Sequence) and not isinstance(one, str):
        if not isinstance(other, Sequence) or len(one) != len(other):
            return False
        return all(alike(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)
