"""Rotary positions (Su et al. 2021): queries and keys are rotated by an angle that grows with their position.

In: (T, W) projections whose first columns are heads of size D to be rotated. Out: the same, rotated: in each head the
pair (i, i + D/2) by position x base^(-2i/D). The dot product of a query and a key then depends on their distance only,
so there are no parameters and no last position.

Notable choice: cos and sin are computed once per batch for all layers that share a base.

Shapes: T tokens, W width, D size of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotary:
    cos: Tensor  # (T, 1, D)
    sin: Tensor  # (T, 1, D): its first half negated

    @staticmethod
    def of(positions: Tensor, size: int, base: float, tokens: int) -> Rotary:
        """For `tokens` vectors; those beyond the given positions are padding."""
        rates = base ** (-torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size)
        angles = torch.nn.functional.pad(positions.float(), (0, tokens - len(positions)))[:, None, None] * rates
        sin = angles.sin()
        return Rotary(torch.cat([angles.cos()] * 2, -1), torch.cat([-sin, sin], -1))

    def at(self, places: Tensor) -> Rotary:
        return Rotary(self.cos[places], self.sin[places])

    def __call__(self, x: Tensor, heads: int) -> Tensor:
        """Rotates the first `heads` heads of each vector and leaves the rest unchanged."""
        size = self.cos.shape[-1]
        vectors = x[:, : heads * size].view(len(x), heads, size)
        swapped = vectors.roll(size // 2, -1)
        rotated = (vectors * self.cos + swapped * self.sin).to(x.dtype)
        return torch.cat([rotated.flatten(1), x[:, heads * size :]], 1)
