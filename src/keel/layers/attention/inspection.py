"""Inspecting one attention layer: collects its weights, or scales the outputs of its heads (`keel explain`).

In: the concatenated outputs of the heads, and a function that computes the weights. Out: the same outputs, scaled.

Notable choice: the ordinary paths compute no weights that could be collected (fused kernels), so the weights are
computed a second time, by the formula, only when they are asked for (docs/decisions/0028).

Shapes: T tokens, S selected tokens, W width, N layers, R rows, H heads, L length, D = W / H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from keel.values import Inspection, Selected


@dataclass(frozen=True)
class LayerInspection:
    """An `Inspection` as one layer sees it."""

    whole: Inspection
    layer: int  # from 0

    def __call__(
        self, mixed: Tensor, lengths: tuple[int, ...], selected: Selected | None, weights: Callable[[], list[Tensor]]
    ) -> Tensor:
        """(T, W) or (S, W)"""
        if self.whole.weights is not None:
            self.whole.weights[self.layer] = weights()
        if self.whole.head_factors is None:
            return mixed
        factors = self.whole.head_factors[self.layer]  # (R, H)
        of_token = factors.repeat_interleave(torch.tensor(lengths, device=factors.device), 0)
        if selected is not None:
            of_token = of_token[selected.places]
        of_token = F.pad(of_token, (0, 0, 0, len(mixed) - len(of_token)))  # padding after the last row
        heads = mixed.unflatten(1, (factors.shape[1], -1))
        return (heads * of_token[:, :, None].to(mixed.dtype)).flatten(1)
