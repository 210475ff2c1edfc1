"""One vector per row from one vector per token.

In: (T, W) vectors of a flat batch. Out: (R, W).

cls        the row's first vector; through the backbone's pooler where it has one
mean       the mean over the row's tokens
attention  a weighted mean; the weights are a softmax over a learned score per token (Yang et al. 2016)

Shapes: T tokens, R rows, W width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from keel.interfaces import Backbone
from keel.values import Batch


class Pooler(nn.Module):
    """The pooler of published BERTs: a dense layer and an activation on a row's first vector."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation

    def forward(self, rows: Tensor) -> Tensor:
        return self.activation(self.dense(rows))


class ClsPooling(nn.Module):
    def forward(self, backbone: Backbone, vectors: Tensor, batch: Batch) -> Tensor:
        return backbone.pool(vectors, batch)


class MeanPooling(nn.Module):
    def forward(self, backbone: Backbone, vectors: Tensor, batch: Batch) -> Tensor:
        return mean_of_rows(vectors, batch)


class AttentionPooling(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, backbone: Backbone, vectors: Tensor, batch: Batch) -> Tensor:
        rows = row_of_token(batch)
        scores = self.score(vectors).squeeze(1).float()
        highest = scores.new_full((len(batch.lengths),), float("-inf")).scatter_reduce(0, rows, scores, "amax")
        weights = torch.exp(scores - highest.detach()[rows])
        total = weights.new_zeros(len(batch.lengths)).index_add(0, rows, weights)
        weighted = vectors * (weights / total[rows])[:, None]
        return weighted.new_zeros(len(batch.lengths), vectors.shape[1]).index_add(0, rows, weighted)


def make_pooling(kind: str, width: int) -> nn.Module:
    return {"cls": ClsPooling, "mean": MeanPooling}[kind]() if kind != "attention" else AttentionPooling(width)


def mean_of_rows(vectors: Tensor, batch: Batch) -> Tensor:
    lengths = torch.tensor(batch.lengths, dtype=vectors.dtype, device=vectors.device)
    sums = vectors.new_zeros(len(batch.lengths), vectors.shape[1]).index_add(0, row_of_token(batch), vectors)
    return sums / lengths[:, None]


def row_of_token(batch: Batch) -> Tensor:
    lengths = torch.tensor(batch.lengths, device=batch.ids.device)
    rows = torch.arange(len(batch.lengths), device=batch.ids.device)
    return torch.repeat_interleave(rows, lengths, output_size=sum(batch.lengths))
