"""Weight initialisation: normal with a small standard deviation (as BERT), Glorot, and scaling for residual layers.

Convolutions and recurrent networks, which BERT does not have, start uniform within 1 / sqrt(inputs); the forget gate of
an LSTM gets a bias of 1 (Jozefowicz et al. 2015).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


@torch.no_grad()
def init_normal(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Draws in module order, so that the same generator gives the same weights."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight.normal_(0.0, std, generator=generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            part.bias.zero_()
        if isinstance(part, nn.LayerNorm):
            part.reset_parameters()
        if isinstance(part, nn.Conv1d):
            bound = part.weight[0].numel() ** -0.5
            part.weight.uniform_(-bound, bound, generator=generator)
            if part.bias is not None:
                part.bias.zero_()
        if isinstance(part, nn.LSTM | nn.GRU):
            _init_recurrent(part, generator)


def _init_recurrent(network: nn.LSTM | nn.GRU, generator: torch.Generator) -> None:
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
def init_glorot(module: nn.Module, generator: torch.Generator) -> None:
    """Linear layers: uniform within sqrt(6 / (in + out)); embeddings: normal with standard deviation 1 / sqrt(W)."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            bound = (6 / sum(part.weight.shape)) ** 0.5
            part.weight.uniform_(-bound, bound, generator=generator)
        if isinstance(part, nn.Embedding):
            part.weight.normal_(0.0, part.weight.shape[1] ** -0.5, generator=generator)


@torch.no_grad()
def init_identity(layer: nn.Linear) -> None:
    """The layer starts as the identity, as far as its shape allows, plus a tenth of its random weights."""
    shared = min(layer.weight.shape)
    layer.weight[:shared] *= 0.1
    layer.weight += torch.eye(*layer.weight.shape)


@torch.no_grad()
def divide_weights(layers: Iterable[nn.Linear], divisor: float) -> None:
    """For layers that add to the residual stream: smaller initial weights let the input dominate after many layers.
    Pre-norm models divide by the square root of twice the number of blocks (Radford et al. 2019)."""
    for layer in layers:
        layer.weight /= divisor
