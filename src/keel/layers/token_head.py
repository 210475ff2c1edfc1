"""From a token's vector to a guess of the token: dense, activation, norm, and the input table turned round.

In: (P, W) vectors at the asked places. Out: (P, V) logits, or the loss without keeping them (`cross_entropy.py`).
The output table is the input table (weight tying), so the objective hands it in.

Shapes: P places, W width, E size of an embedding, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from keel.interfaces import Backbone
from keel.layers.activations import ACTIVATIONS
from keel.layers.cross_entropy import tied_cross_entropy


class TokenHead(nn.Module):
    """As the backbone's family has it (`Backbone.head`): `dense` with or without biases, or `plain`: nothing between
    the vectors and the table."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        vocabulary, size = backbone.token_table().shape
        self.plain = backbone.head == "plain"
        if self.plain:
            return
        biased = backbone.head == "dense"
        self.dense = nn.Linear(backbone.width, size, bias=biased)
        self.norm = nn.LayerNorm(size, eps=backbone.config.norm_epsilon, bias=biased)
        self.activation = ACTIVATIONS[backbone.head_activation or backbone.config.activation]
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def _hidden(self, vectors: Tensor) -> Tensor:
        return vectors if self.plain else self.norm(self.activation(self.dense(vectors)))

    def forward(self, vectors: Tensor, table: Tensor) -> Tensor:
        return torch.addmm(self._bias(table), self._hidden(vectors), table.t())

    def _bias(self, table: Tensor) -> Tensor:
        return table.new_zeros(len(table)) if self.plain else self.bias

    def score(self, vectors: Tensor, table: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss, and how many answers were right."""
        return tied_cross_entropy(self._hidden(vectors), table, self._bias(table), answers)
