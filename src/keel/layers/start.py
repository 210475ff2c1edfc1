"""Fresh weights as BERT's: normal with a small deviation, norms at identity, biases at zero."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def start_weights(module: nn.Module, deviation: float, generator: torch.Generator) -> None:
    """In the order of the modules, so the same generator gives the same weights."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight.normal_(0.0, deviation, generator=generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            part.bias.zero_()
        if isinstance(part, nn.LayerNorm):
            part.reset_parameters()


@torch.no_grad()
def shrink_sums(blocks: nn.ModuleList) -> None:
    """Where norms come first, layers that add to the sum of all start smaller, the more of them there are."""
    for block in blocks:
        for layer in (block.attention.out, block.shrink):  # type: ignore[union-attr]
            layer.weight /= (2 * len(blocks)) ** 0.5  # type: ignore[union-attr]
