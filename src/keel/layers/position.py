"""Position encodings of a Transformer, of three kinds.

In: (T, W) embedded tokens and their positions. Out: the same with positions added, or rotations of queries and keys.

sinusoid  sines and cosines of wavelengths from 2 pi to 10000 x 2 pi, added (Vaswani et al. 2017); no last position
learned   one vector per position, scaled like the tokens' and added; positions beyond the table do not exist
rotary    nothing is added; queries and keys are rotated (`attention/rotary.py`)

Shapes: T tokens, W width.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from keel.layers.attention.rotary import Rotary

Kind = Literal["sinusoid", "learned", "rotary"]
BASE = 10000.0


class Positions(nn.Module):
    def __init__(self, kind: Kind, width: int, heads: int, count: int) -> None:
        super().__init__()
        self.kind, self.size = kind, width // heads
        self.table = nn.Embedding(count, width) if kind == "learned" else None

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Rotary | None]:
        if self.table is not None:
            added: Tensor = self.table(positions) * x.shape[1] ** 0.5
            return x + torch.nn.functional.pad(added, (0, 0, 0, len(x) - len(added))), None
        if self.kind == "rotary":
            return x, Rotary.of(positions, self.size, BASE, len(x))
        return x + waves(positions, x.shape[1], len(x)), None


def waves(positions: Tensor, width: int, tokens: int) -> Tensor:
    """(tokens, W): sin in the even columns, cos in the odd ones; vectors beyond the given positions are padding."""
    padded = torch.nn.functional.pad(positions.float(), (0, tokens - len(positions)))
    angles = padded[:, None] * wave_rates(width, positions.device)
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width]


def wave_rates(width: int, device: torch.device | None = None) -> Tensor:
    """Radians per position, the fastest first."""
    return torch.exp(torch.arange((width + 1) // 2, device=device) * (-2 * math.log(BASE) / width))
