"""Attention from one text to another: the queries of a decoder, the keys and values of what was encoded.

In: flat vectors of the texts being written, and of the texts read. Out: flat vectors, one for each query.

Notable choices
- Here rows are padded on both sides. Two lengths vary at once, so runs of equal ones are short, and this product is the
  smallest part of a decoder's layer; all layers around it stay flat.
- torch's fused kernel has no dropout on a CPU, and draws from a generator that all threads share; there the formula is
  written out, with our own dropout.

Shapes: Q queries in all, K tokens read in all, R rows, W width, H heads, D = W / H, S longest text read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.layers.dropout import dropout
from keel.layers.padded_rows import PaddedRows
from keel.layers.padding import pad_to_multiple


@dataclass(frozen=True)
class EncodedSource:
    """What one layer looks at: the keys and values of each row, and which of them are there."""

    keys: Tensor  # (R, H, S, D)
    values: Tensor
    visible: Tensor  # (R, 1, 1, S) bool

    def pick(self, rows: Tensor) -> EncodedSource:
        return EncodedSource(self.keys[rows], self.values[rows], self.visible[rows])


class CrossAttention(nn.Module):
    def __init__(self, width: int, source_width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(source_width, 2 * width)
        self.out = nn.Linear(width, width)

    def read(self, vectors: Tensor, padding: PaddedRows) -> EncodedSource:
        """Keys and values of the texts read: once for a text, however long the answer."""
        table = padding.pad(self.key_value(pad_to_multiple(vectors))).unflatten(2, (2, self.heads, -1))
        keys, values = table.permute(2, 0, 3, 1, 4)
        return EncodedSource(keys, values, padding.inside[:, None, None, :])

    def forward(self, x: Tensor, padding: PaddedRows, source: EncodedSource) -> Tensor:
        """(Q, W). Row by row: the i-th row of queries looks at the i-th row of the source."""
        queries, rate = self._queries(x, padding), self.rate if self.training else 0.0
        if rate and x.device.type == "cpu":
            mixed = dropout(_weights(queries, source), rate).to(source.values.dtype) @ source.values
        else:
            mixed = F.scaled_dot_product_attention(
                queries, source.keys, source.values, attn_mask=source.visible, dropout_p=rate
            )
        found: Tensor = self.out(padding.flatten(mixed.transpose(1, 2).flatten(2)))
        return found

    def weights(self, x: Tensor, padding: PaddedRows, source: EncodedSource) -> Tensor:
        """(R, H, longest query row, S): how much each query looks at each token read."""
        return _weights(self._queries(x, padding), source)

    def _queries(self, x: Tensor, padding: PaddedRows) -> Tensor:
        return padding.pad(self.query(x)).unflatten(2, (self.heads, -1)).transpose(1, 2)


def _weights(queries: Tensor, source: EncodedSource) -> Tensor:
    scores = queries @ source.keys.transpose(2, 3) * queries.shape[3] ** -0.5
    return scores.masked_fill(~source.visible, -torch.inf).softmax(3, torch.float32)
