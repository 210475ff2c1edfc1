"""Keel's dropout drops the share it is asked for, keeps the mean, and repeats itself for a seed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from keel.layers.attention import Attend, How
from keel.layers.cross_attention import CrossAttention, Padding
from keel.layers.dropout import Dropout, drawing, dropout


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 0.9])
def test_share_and_scale(share: float) -> None:
    torch.manual_seed(0)
    out = dropout(torch.ones(1000, 1003), share)
    dropped = float((out == 0).float().mean())
    assert abs(dropped - share) < 4 * (share * (1 - share) / out.numel()) ** 0.5 + 1 / 65536
    assert out[out != 0].unique().numel() == 1
    assert abs(float(out.mean()) - 1) < 0.02


def test_each_of_four_values_from_one_draw_is_independent() -> None:
    torch.manual_seed(1)
    kept = (dropout(torch.ones(400_000), 0.5) != 0).view(-1, 4).float()
    correlation = torch.corrcoef(kept.T) - torch.eye(4)
    assert float(correlation.abs().max()) < 0.02
    assert float((kept.mean(0) - 0.5).abs().max()) < 0.01


def test_same_seed_same_mask_and_none_in_evaluation() -> None:
    x = torch.randn(7, 5)
    layer = Dropout(0.3)
    torch.manual_seed(3)
    first = layer(x)
    torch.manual_seed(3)
    assert torch.equal(first, layer(x))
    assert torch.equal(layer.eval()(x), x)


def test_attention_with_dropout_has_the_mean_of_attention_without() -> None:
    torch.manual_seed(5)
    qkv, lengths = torch.randn(12, 48), (6, 6)
    mean = torch.stack([Attend.apply(lengths, lengths, How(2, 8**-0.5, share=0.2), qkv) for _ in range(4000)]).mean(0)
    assert float((mean - Attend.apply(lengths, lengths, How(2, 8**-0.5), qkv)).abs().max()) < 0.08


def test_attention_to_a_source_with_dropout_has_the_mean_of_attention_without() -> None:
    """And each draw is another; what stands behind a text's end is not looked at in either."""
    torch.manual_seed(6)
    layer = CrossAttention(16, 12, 2, 0.2)
    x, read = torch.randn(9, 16), torch.randn(8, 12)
    cpu = torch.device("cpu")
    queries, source = Padding.of((5, 4), cpu), layer.read(read, Padding.of((6, 2), cpu))
    with torch.no_grad():
        draws = torch.stack([layer(x, queries, source) for _ in range(4000)])
        plain = layer.eval()(x, queries, source)
    assert float((draws.mean(0) - plain).abs().max()) < 0.02 < float(draws.std(0).min())


def test_threads_draw_by_themselves() -> None:
    """What one thread drops does not depend on what another draws in between."""
    layer, x, cpu = Dropout(0.5), torch.ones(1000), torch.device("cpu")

    def draw(seed: int) -> torch.Tensor:
        with drawing(seed, cpu):
            return torch.cat([layer(x) for _ in range(50)])

    alone = [draw(seed) for seed in range(6)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(draw, range(6)))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert not torch.equal(alone[0], alone[1])
