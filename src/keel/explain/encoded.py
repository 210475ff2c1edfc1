"""Arrays as JSON: nested lists, or base64 for a page that reads millions of numbers; and small images of large maps.

In: arrays. Out: plain data. base64 holds float32 little-endian in C order, or one byte per number for thumbnails.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from keel.errors import UserError

ENCODINGS = ("lists", "base64")
DIGITS = 8  # of a number between 0 and 1 in a list; float32 has fewer


def encode_array(values: np.ndarray, encoding: str) -> Any:
    if encoding not in ENCODINGS:
        raise UserError(f"unknown encoding '{encoding}'; choose {' or '.join(ENCODINGS)}")
    if encoding == "base64":
        return to_base64(values.astype("<f4"))
    return np.round(values.astype(np.float64), DIGITS).tolist()


def to_base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def thumbnails(maps: np.ndarray, size: int) -> np.ndarray:
    """(..., K, K) uint8: the largest weight (0 to 1) of each cell of a K x K grid, as 0 to 255; K <= `size`."""
    if size < 1:
        raise UserError(f"thumbnails of {size} x {size} cells cannot be drawn; give 1 or more")
    for axis in (-2, -1):
        length = maps.shape[axis]
        starts = np.unique(np.arange(min(size, length)) * length // min(size, length))
        maps = np.maximum.reduceat(maps, starts, axis=axis)
    return np.clip(np.rint(maps * 255), 0, 255).astype(np.uint8)
