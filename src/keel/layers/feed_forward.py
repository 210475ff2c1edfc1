"""The feed-forward half of a Transformer block: plain (Vaswani et al. 2017), or gated (Shazeer 2020).

In: (T, W) vectors. Out: (T, W).
"""

from __future__ import annotations

from torch import Tensor, nn

from keel.layers.activations import ACTIVATIONS
from keel.layers.dropout import Dropout


class FeedForward(nn.Module):
    """down(activation(up(x))), then dropout."""

    def __init__(self, width: int, inner: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout(self.down(self.activation(self.up(x))))
        return result


class GatedFeedForward(nn.Module):
    """down(activation(a) x b), where a and b are the halves of up(x); without biases, and with dropout before the
    last product, as ModernBERT."""

    def __init__(self, width: int, inner: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.up(x).chunk(2, 1)
        result: Tensor = self.down(self.dropout(self.activation(a) * b))
        return result
