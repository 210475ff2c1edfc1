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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.layers.dropout import dropout
from keel.layers.filler import fill_up


@dataclass(frozen=True)
class Padding:
    """Where the tokens of flat rows stand when each row is filled up to the longest."""

    rows: int
    longest: int
    places: Tensor  # (T,) of each flat token in the padded table
    inside: Tensor  # (R, longest) bool

    @staticmethod
    def of(lengths: Sequence[int], device: torch.device) -> Padding:
        inside = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        arrays = (torch.from_numpy(array).to(device, non_blocking=True) for array in (np.flatnonzero(inside), inside))
        return Padding(len(lengths), max(lengths), *arrays)

    def fill(self, flat: Tensor) -> Tensor:
        """(R, longest, ...)"""
        inside = flat[: len(self.places)]  # what stands behind is filler
        table = flat.new_zeros(self.rows * self.longest, *flat.shape[1:]).index_copy(0, self.places, inside)
        return table.unflatten(0, (self.rows, self.longest))

    def flat(self, table: Tensor) -> Tensor:
        """The way back, filled up as flat batches are."""
        return fill_up(table.flatten(0, 1).index_select(0, self.places))


@dataclass(frozen=True)
class Source:
    """What one layer looks at: the keys and values of each row, and which of them are there."""

    keys: Tensor  # (R, H, S, D)
    values: Tensor
    seen: Tensor  # (R, 1, 1, S) bool

    def pick(self, rows: Tensor) -> Source:
        return Source(self.keys[rows], self.values[rows], self.seen[rows])


class CrossAttention(nn.Module):
    def __init__(self, width: int, source_width: int, heads: int, share: float) -> None:
        super().__init__()
        self.heads, self.share = heads, share
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(source_width, 2 * width)
        self.out = nn.Linear(width, width)

    def read(self, vectors: Tensor, padding: Padding) -> Source:
        """Keys and values of the texts read: once for a text, however long the answer."""
        table = padding.fill(self.key_value(fill_up(vectors))).unflatten(2, (2, self.heads, -1))
        keys, values = table.permute(2, 0, 3, 1, 4)
        return Source(keys, values, padding.inside[:, None, None, :])

    def forward(self, x: Tensor, padding: Padding, source: Source) -> Tensor:
        """(Q, W). Row by row: the i-th row of queries looks at the i-th row of the source."""
        queries, share = self._queries(x, padding), self.share if self.training else 0.0
        if share and x.device.type == "cpu":
            mixed = dropout(_weights(queries, source), share).to(source.values.dtype) @ source.values
        else:
            mixed = F.scaled_dot_product_attention(
                queries, source.keys, source.values, attn_mask=source.seen, dropout_p=share
            )
        found: Tensor = self.out(padding.flat(mixed.transpose(1, 2).flatten(2)))
        return found

    def weights(self, x: Tensor, padding: Padding, source: Source) -> Tensor:
        """(R, H, longest query row, S): how much each query looks at each token read."""
        return _weights(self._queries(x, padding), source)

    def _queries(self, x: Tensor, padding: Padding) -> Tensor:
        return padding.fill(self.query(x)).unflatten(2, (self.heads, -1)).transpose(1, 2)


def _weights(queries: Tensor, source: Source) -> Tensor:
    scores = queries @ source.keys.transpose(2, 3) * queries.shape[3] ** -0.5
    return scores.masked_fill(~source.seen, -torch.inf).softmax(3, torch.float32)
