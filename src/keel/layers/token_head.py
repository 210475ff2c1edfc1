"""Token prediction heads: (dense, activation, norm,) and the transposed input embeddings.

In: (P, W) vectors. Out: (P, V) logits, or the loss without storing them (`cross_entropy.py`).
The output embeddings are the input embeddings (weight tying), so the objective passes them in.

Shapes: P predictions, W width, E width of an embedding, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from keel.layers.activations import ACTIVATIONS
from keel.layers.cross_entropy import tied_cross_entropy


class TokenHead(nn.Module):
    """As BERT's; `bias=False`: dense layer and norm without biases, as ModernBERT's."""

    def __init__(
        self, width: int, table: Tensor, activation: str = "gelu", norm_epsilon: float = 1e-5, bias: bool = True
    ) -> None:
        super().__init__()
        vocabulary, size = table.shape
        self.dense = nn.Linear(width, size, bias=bias)
        self.norm = nn.LayerNorm(size, eps=norm_epsilon, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, vectors: Tensor, table: Tensor) -> Tensor:
        return torch.addmm(self.bias, self._transform(vectors), table.t())

    def score(self, vectors: Tensor, table: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss, and the number of correct predictions."""
        return tied_cross_entropy(self._transform(vectors), table, self.bias, answers)

    def _transform(self, vectors: Tensor) -> Tensor:
        transformed: Tensor = self.norm(self.activation(self.dense(vectors)))
        return transformed


class TiedHead(nn.Module):
    """Logits directly from the vectors and the embedding matrix, as GPT-2's."""

    def forward(self, vectors: Tensor, table: Tensor) -> Tensor:
        return torch.addmm(table.new_zeros(len(table)), vectors, table.t())

    def score(self, vectors: Tensor, table: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        return tied_cross_entropy(vectors, table, table.new_zeros(len(table)), answers)
