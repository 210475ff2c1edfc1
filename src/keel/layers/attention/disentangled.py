"""Disentangled self-attention over a flat batch (DeBERTa, He et al. 2021): content and position have their own vectors.

In: (T, W) vectors of all rows end to end, and an `AttentionContext` with vectors for distances. Out: (T, W), or (S, W)
for the selected tokens.

The score of a query and a key is the sum of up to three products, over sqrt(D x number of products):

     content to content    the token's query, the other token's key
c2p  content to position   the token's query, the key of their distance
p2c  position to content   the query of their distance, the other token's key

Notable choices
- The keys and queries of distances come from the distance vectors: by matrices of their own, or by those of the tokens
  (`share`), as in DeBERTa v3. They are computed once per layer for all rows, and only for distances that occur.
- On a CPU, rows of equal length are computed together, without padding; on an accelerator all rows at once, padded.
- All queries are computed even if few are selected: what is saved would not pay for the irregular distances.

Shapes: T tokens, S selected tokens, R rows, L length, W width, H heads, D = W / H, P distance vectors.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.layers.attention.context import AttentionContext
from keel.layers.attention.cpu import TOGETHER, parts_of, runs_of
from keel.layers.attention.relative import DistanceVectors
from keel.layers.attention.self_attention import attend, attention_weights
from keel.layers.dropout import dropout
from keel.layers.padded_rows import PaddedRows

Product = Literal["c2p", "p2c"]


class DisentangledAttention(nn.Module):
    """`products`: those besides content to content; `vector_dropout`: rate, on the distance vectors."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        vector_dropout: float,
        products: tuple[Product, ...],
        share: bool,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout, self.vector_dropout = dropout, vector_dropout
        self.scale = (width // heads * (1 + len(products))) ** -0.5
        self.products = products
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.distance_key = nn.Linear(width, width) if "c2p" in products and not share else None
        self.distance_query = nn.Linear(width, width) if "p2c" in products and not share else None

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        assert context.distances is not None
        qkv, positions = self.qkv(x), self._project(context.distances)
        mix = self._mix_runs if x.device.type == "cpu" else self._mix_padded
        mixed = mix(qkv, context, positions)
        if context.selected is not None:
            mixed = mixed[context.selected.places]
        if context.inspection is not None:
            mixed = context.inspection(mixed, context.lengths, context.selected, lambda: self.weights(x, context))
        return self.out(mixed)

    def weights(self, x: Tensor, context: AttentionContext) -> list[Tensor]:
        """(R, H, L, L) for each run of rows of equal length: how much each token attends to each, without dropout."""
        assert context.distances is not None
        found, qkv, positions = [], self.qkv(x), self._project(context.distances)
        for run in runs_of(context.lengths, context.lengths, self.heads, TOGETHER):
            q, k, _ = parts_of([qkv], run, self.heads)
            bias = self._bias(q, k, run.length, context, positions)
            found.append(attention_weights(q, k, self.scale, bias))
        return found

    def _project(self, distances: DistanceVectors) -> dict[Product, Tensor]:
        """(H, P, D) each: the keys of distances for content to position, their queries for position to content."""
        vectors = distances.vectors
        if self.training and self.vector_dropout:
            vectors = dropout(vectors, self.vector_dropout)
        query, key, _ = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
        matrices = {"p2c": (self.distance_query, query), "c2p": (self.distance_key, key)}
        found: dict[Product, Tensor] = {}
        for product in self.products:
            layer, of_tokens = matrices[product]
            projected = F.linear(vectors, *of_tokens) if layer is None else layer(vectors)
            found[product] = projected.unflatten(1, (self.heads, -1)).transpose(0, 1)
        return found

    def _mix_runs(self, qkv: Tensor, context: AttentionContext, positions: dict[Product, Tensor]) -> Tensor:
        mixed = []
        for run in runs_of(context.lengths, context.lengths, self.heads, TOGETHER):
            q, k, v = parts_of([qkv], run, self.heads)
            bias = self._bias(q, k, run.length, context, positions)
            attended = attend(q, k, v, self.scale, bias, self.dropout if self.training else 0.0)
            mixed.append(attended.transpose(1, 2).flatten(0, 1).flatten(1))
        return torch.cat([*mixed, qkv.new_zeros(len(qkv) - sum(context.lengths), mixed[0].shape[1])])

    def _mix_padded(self, qkv: Tensor, context: AttentionContext, positions: dict[Product, Tensor]) -> Tensor:
        rows = PaddedRows.of(context.lengths, qkv.device)
        q, k, v = rows.pad(qkv).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        bias = self._bias(q, k, rows.longest, context, positions)
        bias = bias.masked_fill(~rows.inside[:, None, None, :], -torch.inf)
        attended = attend(q, k, v, self.scale, bias, self.dropout if self.training else 0.0)
        return rows.flatten(attended.transpose(1, 2).flatten(2))

    def _bias(
        self, q: Tensor, k: Tensor, length: int, context: AttentionContext, positions: dict[Product, Tensor]
    ) -> Tensor:
        """(R, H, L, L): the products with positions."""
        assert context.distances is not None
        near, index = context.distances.within(length), context.distances.index(length)
        bias = q.new_zeros(())
        if (keys := positions.get("c2p")) is not None:
            scores = torch.einsum("rhld,hpd->rhlp", q, keys[:, near])
            bias = bias + scores.gather(3, index.expand(*scores.shape[:3], length))
        if (queries := positions.get("p2c")) is not None:
            scores = torch.einsum("rhld,hpd->rhlp", k, queries[:, near])
            bias = bias + scores.gather(3, index.t().expand(*scores.shape[:3], length)).transpose(2, 3)
        return bias * self.scale
