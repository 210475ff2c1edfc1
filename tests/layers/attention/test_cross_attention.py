"""Attention from a decoder to what was encoded: with and without dropout the same on average."""

from __future__ import annotations

import torch

from keel.layers.attention.cross_attention import CrossAttention
from keel.layers.padded_rows import PaddedRows


def test_dropout_keeps_the_mean() -> None:
    """And no two draws are alike; padding is attended to neither with dropout nor without."""
    torch.manual_seed(6)
    layer = CrossAttention(16, 12, 2, 0.2)
    x, read = torch.randn(9, 16), torch.randn(8, 12)
    cpu = torch.device("cpu")
    queries, source = PaddedRows.of((5, 4), cpu), layer.read(read, PaddedRows.of((6, 2), cpu))
    with torch.no_grad():
        draws = torch.stack([layer(x, queries, source) for _ in range(4000)])
        plain = layer.eval()(x, queries, source)
    assert float((draws.mean(0) - plain).abs().max()) < 0.02 < float(draws.std(0).min())
