"""Relative positions: what a score knows of the distance between query and key, in logarithmic buckets.

In: positions in a row. Out: a bias on the scores (T5, MPNet), or the index of the vector that stands for each distance
(DeBERTa, `disentangled.py`). Near distances have a bucket each; farther ones share buckets that grow with the distance.

Notable choices
- The published formulas differ (rounded down here, up there), and so there are two; their rounding is that of fp32,
  because a bucket at its edge decides which vector a pretrained model looks up.
- A bias is computed once per forward pass and row length, and used by all layers.

Papers: Raffel et al. 2020, section 2.1; He et al. 2021 (arXiv:2006.03654), section 3.1, and its code for the buckets.

Shapes: H heads, Q queries and K keys of a row, L length, P position vectors, W width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


def buckets_by_side(ahead: Tensor, buckets: int, farthest: int) -> Tensor:
    """T5's buckets of the distances `ahead` = query - key: half of them for each side, and half of these exact."""
    side = buckets // 2
    exact = side // 2
    far = ahead.abs()
    steps = torch.log(far.clamp(min=1).float() / exact) / math.log(farthest / exact) * (side - exact)
    shared = (exact + steps.long()).clamp(max=side - 1)
    return torch.where(far < exact, far, shared) + side * (ahead < 0)


def signed_buckets(ahead: Tensor, buckets: int, farthest: int) -> Tensor:
    """DeBERTa's buckets of the distances `ahead` = query - key: exact up to half of `buckets`, with the sign of the
    distance."""
    exact = buckets // 2
    far = ahead.abs().clamp(min=exact)
    scale = torch.log(torch.full((), (farthest - 1) / exact, dtype=torch.float32, device=ahead.device))
    steps = torch.ceil(torch.log(far / exact) / scale * (exact - 1)).long()
    return torch.where(far <= exact, ahead, (steps + exact) * ahead.sign())


class RelativeBias(nn.Module):
    """A `ScoreBias`: one learned number for each head and bucket of distances."""

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128) -> None:
        super().__init__()
        self.buckets, self.farthest = buckets, farthest
        self.table = nn.Embedding(buckets, heads)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(H, Q, K)"""
        bias: Tensor = self.table(buckets_by_side(queries[:, None] - keys, self.buckets, self.farthest))
        return bias.permute(2, 0, 1)


class SharedBias:
    """A bias for one forward pass, in which all layers ask for the same ones: of whole rows, by their length."""

    def __init__(self, bias: RelativeBias) -> None:
        self._bias = bias
        self._known: dict[int, Tensor] = {}

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        assert len(queries) == len(keys), "only whole rows share a bias"
        if len(keys) not in self._known:
            self._known[len(keys)] = self._bias(queries, keys)
        return self._known[len(keys)]


@dataclass(frozen=True)
class DistanceVectors:
    """Vectors for the distances inside the rows of a batch, for one forward pass.

    `reach`: vector number `reach` stands for distance 0; there are 2 x `reach`."""

    vectors: Tensor  # (P, W)
    reach: int
    table: DistanceTable
    _known: dict[int, Tensor] = field(default_factory=dict)

    def within(self, length: int) -> slice:
        """The vectors that a row of this length needs."""
        reach = self.table.reach(length)
        return slice(self.reach - reach, self.reach + reach)

    def index(self, length: int) -> Tensor:
        """(L, L): for each query and key, which of the vectors `within` stands for their distance."""
        if length not in self._known:
            places = torch.arange(length, device=self.vectors.device)
            reach = self.table.reach(length)
            distances = self.table.buckets_of(places[:, None] - places)
            self._known[length] = (distances + reach).clamp(0, 2 * reach - 1)
        return self._known[length]


class DistanceTable(nn.Module):
    """DeBERTa's position vectors: one for each distance, or bucket of distances, up to `span` on either side.

    `buckets` 0: every distance up to `farthest` has a vector. `norm`: applied to the vectors before they are used."""

    def __init__(self, width: int, buckets: int, farthest: int, norm: nn.Module | None) -> None:
        super().__init__()
        self.bucket_count, self.farthest = buckets, farthest
        self.span = buckets or farthest
        self.table = nn.Embedding(2 * self.span, width)
        self.norm = norm

    def forward(self, longest: int) -> DistanceVectors:
        """For rows of at most this length."""
        reach = self.reach(longest)
        vectors = self.table.weight[self.span - reach : self.span + reach]
        return DistanceVectors(vectors if self.norm is None else self.norm(vectors), reach, self)

    def buckets_of(self, ahead: Tensor) -> Tensor:
        return signed_buckets(ahead, self.bucket_count, self.farthest) if self.bucket_count else ahead

    def reach(self, length: int) -> int:
        """How many vectors on either side of distance 0 a row needs: known on the host, so it may be one too many."""
        far, exact = length - 1, self.bucket_count // 2
        if self.bucket_count and far > exact:
            steps = math.log(far / exact) / math.log((self.farthest - 1) / exact) * (exact - 1)
            far = math.ceil(steps) + exact
        return min(far + 2, self.span)
