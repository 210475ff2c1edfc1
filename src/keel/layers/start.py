"""Fresh weights as BERT's: normal with a small deviation, norms at identity, biases at zero.

Convolutions and recurrent networks, which BERT has none of, start uniform within one over the square root of what
they sum up; an LSTM begins by remembering (Jozefowicz et al. 2015: a bias of 1 for its forget gate).
"""

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
        if isinstance(part, nn.Conv1d):
            bound = part.weight[0].numel() ** -0.5
            part.weight.uniform_(-bound, bound, generator=generator)
            part.bias.zero_()  # type: ignore[union-attr]
        if isinstance(part, nn.LSTM | nn.GRU):
            _start_recurrent(part, generator)


def _start_recurrent(network: nn.LSTM | nn.GRU, generator: torch.Generator) -> None:
    cells = network.hidden_size
    for name, parameter in network.named_parameters():
        if name.startswith("bias"):
            parameter.zero_()
        else:
            bound = parameter.shape[1] ** -0.5
            parameter.uniform_(-bound, bound, generator=generator)
        if name.startswith("bias_ih") and isinstance(network, nn.LSTM):
            parameter[cells : 2 * cells] = 1.0


@torch.no_grad()
def start_as_glorot(module: nn.Module, generator: torch.Generator) -> None:
    """Linear layers uniform within the root of 6 / (in + out); embeddings normal, with one over the root of W."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            bound = (6 / sum(part.weight.shape)) ** 0.5
            part.weight.uniform_(-bound, bound, generator=generator)
        if isinstance(part, nn.Embedding):
            part.weight.normal_(0.0, part.weight.shape[1] ** -0.5, generator=generator)


@torch.no_grad()
def shrink_sums(blocks: nn.ModuleList) -> None:
    """Where norms come first, layers that add to the sum of all start smaller, the more of them there are."""
    for block in blocks:
        for layer in (block.attention.out, block.shrink):  # type: ignore[union-attr]
            layer.weight /= (2 * len(blocks)) ** 0.5  # type: ignore[union-attr]


@torch.no_grad()
def halve(*layers: nn.Linear) -> None:
    """What is added to a sum starts at half of its size, so that more of what was there is seen behind many layers."""
    for layer in layers:
        layer.weight /= 2
