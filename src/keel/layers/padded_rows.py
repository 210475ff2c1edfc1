"""Flat rows to a padded tensor and back, for layers that need padded rows (convolutions, cross-attention).

In: (T, ...) vectors of all rows end to end, and the rows' lengths. Out: (R, L, ...) with zeros after each row's end,
and the inverse. Values that such a layer writes into the padding must not leak back into the row: flatten, or multiply
by `inside`, before the next layer that mixes tokens.

Shapes: T tokens, R rows, L longest row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class PaddedRows:
    """Where the tokens of flat rows are when each row is padded to the longest."""

    rows: int
    longest: int
    places: Tensor  # (T,): index of each flat token in the flattened padded tensor
    inside: Tensor  # (R, L) bool: False for padding

    @staticmethod
    def of(lengths: Sequence[int], device: torch.device) -> PaddedRows:
        inside = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        arrays = (torch.from_numpy(array).to(device, non_blocking=True) for array in (np.flatnonzero(inside), inside))
        return PaddedRows(len(lengths), max(lengths), *arrays)

    def pad(self, flat: Tensor) -> Tensor:
        """(R, L, ...)"""
        tokens = flat[: len(self.places)]  # without the padding to a multiple (`padding.py`)
        table = flat.new_zeros(self.rows * self.longest, *flat.shape[1:]).index_copy(0, self.places, tokens)
        return table.unflatten(0, (self.rows, self.longest))

    def flatten(self, table: Tensor) -> Tensor:
        """(T, ...)"""
        return table.flatten(0, 1).index_select(0, self.places)
