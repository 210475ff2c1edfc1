"""Cross-attention: the queries of a decoder, the keys and values of the encoded source.

In: flat vectors of the target, and of the source. Out: flat vectors, one per query.

Notable choices
- Rows are padded here, in both the target and the source. Two lengths vary at once, so runs of equal ones are short,
  and this product is the smallest part of a decoder layer; all layers around it stay flat.
- torch's fused kernel has no dropout on a CPU, and draws from a generator that all threads share; there the formula is
  written out, with our own dropout.

Shapes: Q target tokens in all, R rows, W width, H heads, D = W / H, S longest source.
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
    """The keys and values of the source for one layer, and the mask of its padding."""

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
        """Keys and values of the source, computed once for all target tokens."""
        table = padding.pad(self.key_value(pad_to_multiple(vectors))).unflatten(2, (2, self.heads, -1))
        keys, values = table.permute(2, 0, 3, 1, 4)
        return EncodedSource(keys, values, padding.inside[:, None, None, :])

    def forward(self, x: Tensor, padding: PaddedRows, source: EncodedSource) -> Tensor:
        """(Q, W). The i-th target row attends to the i-th source row."""
        queries, rate = self._queries(x, padding), self.rate if self.training else 0.0
        if rate and x.device.type == "cpu":
            mixed = dropout(_weights(queries, source), rate).to(source.values.dtype) @ source.values
        else:
            mixed = F.scaled_dot_product_attention(
                queries, source.keys, source.values, attn_mask=source.visible, dropout_p=rate
            )
        output: Tensor = self.out(pad_to_multiple(padding.flatten(mixed.transpose(1, 2).flatten(2))))
        return output

    def weights(self, x: Tensor, padding: PaddedRows, source: EncodedSource) -> Tensor:
        """(R, H, longest target, S): attention weights over the source tokens."""
        return _weights(self._queries(x, padding), source)

    def _queries(self, x: Tensor, padding: PaddedRows) -> Tensor:
        return padding.pad(self.query(x)).unflatten(2, (self.heads, -1)).transpose(1, 2)


def _weights(queries: Tensor, source: EncodedSource) -> Tensor:
    scores = queries @ source.keys.transpose(2, 3) * queries.shape[3] ** -0.5
    return scores.masked_fill(~source.visible, -torch.inf).softmax(3, torch.float32)
