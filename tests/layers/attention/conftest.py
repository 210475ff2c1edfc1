"""The reference for all attention kernels: the formula, one row and one head at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from keel.layers.attention.context import ScoreBias
from keel.layers.attention.window import FULL, AttentionWindow


def formula(
    qkv: Tensor,
    lengths: tuple[int, ...],
    heads: int,
    *,
    factors: Sequence[Tensor] | None = None,
    window: AttentionWindow = FULL,
    bias: ScoreBias | None = None,
) -> Tensor:
    """softmax(Q K^T / sqrt(D) + bias) V as it is written in the paper. `factors`: dropout's, (H, L, L) for each row."""
    width = qkv.shape[1] // 3
    size = width // heads
    rows = []
    for number, row in enumerate(qkv.split(list(lengths))):
        positions = torch.arange(len(row))
        added = torch.zeros(heads, len(row), len(row)) if bias is None else bias(positions, positions)
        added = added.expand(heads, -1, -1)
        columns = []
        for head in range(heads):
            q, k, v = (row[:, i * width + head * size : i * width + (head + 1) * size] for i in range(3))
            scores = q @ k.T / size**0.5 + added[head]
            for i in range(len(row)):
                for j in range(len(row)):
                    too_early = window.before is not None and j < i - window.before
                    too_late = window.after is not None and j > i + window.after
                    if too_early or too_late:
                        scores[i, j] = -torch.inf
            weights = torch.softmax(scores, -1)
            columns.append((weights if factors is None else weights * factors[number][head]) @ v)
        rows.append(torch.cat(columns, 1))
    return torch.cat(rows)


@pytest.fixture(scope="session")
def reference() -> Callable[..., Tensor]:
    return formula
