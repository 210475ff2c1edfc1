"""A word's vector from its spelling: character embeddings, convolutions of several widths, highway layers, projection.

In: (N, L) codes of words (`tokenizers/spelling.py`). Out: (N, W). Kim et al. 2016, as used by Peters et al. 2018.

    y = max over positions of relu(convolution of the character embeddings), for each filter
    y = g x relu(A y + a) + (1 - g) x y, g = sigmoid(B y + b), for each highway layer (Srivastava et al. 2015)
    out = P y + p

Notable choice: each word is followed by enough padding that every filter has a position without a character. A word's
vector therefore does not depend on the length of the other words, and the codes may be cut to the longest word.

Shapes: N words, L codes, F filters in all, W width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.tokenizers.spelling import CODES, NOTHING

CARRY = -2.0  # initial gate bias: a fresh highway layer passes its input on almost unchanged


class WordCharacters(nn.Module):
    """`filters`: (width, number of filters) pairs."""

    def __init__(self, character_width: int, filters: list[tuple[int, int]], highway_layers: int, width: int) -> None:
        super().__init__()
        total = sum(count for _, count in filters)
        self.characters = nn.Embedding(CODES, character_width, padding_idx=NOTHING)
        self.filters = nn.ModuleList(nn.Conv1d(character_width, count, size) for size, count in filters)
        self.highway_layers = nn.ModuleList(Highway(total) for _ in range(highway_layers))
        self.projection = nn.Linear(total, width)
        self.widest = max(size for size, _ in filters)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.characters(F.pad(_cut(codes), (0, self.widest)).long()).transpose(1, 2)
        y = torch.cat([torch.relu(convolution(x).amax(2)) for convolution in self.filters], 1)
        for highway in self.highway_layers:
            y = highway(y)
        vectors: Tensor = self.projection(y)
        return vectors

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Weights that preserve the scale of activations: with BERT's small ones they would vanish over the layers."""
        self.characters.weight.normal_(0.0, 1.0, generator=generator)
        self.characters.weight[NOTHING] = 0
        for part in self.modules():
            if isinstance(part, nn.Linear):
                part.weight.normal_(0.0, part.in_features**-0.5, generator=generator)
        for part in self.modules():
            if isinstance(part, Highway):
                part.gate.bias.fill_(CARRY)


class Highway(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x, torch.relu(self.change(x)), torch.sigmoid(self.gate(x)))


def _cut(codes: Tensor) -> Tensor:
    """Drops the columns that are padding in every word. Not on an accelerator: it would synchronise with the device."""
    if codes.device.type != "cpu" or not len(codes):
        return codes
    return codes[:, : int((codes != NOTHING).sum(1).max())]
