"""Dropout drops the share that was set, keeps the mean, and repeats itself for a seed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from keel.layers.dropout import Dropout, dropout, seeded_dropout


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_rate_and_scale(rate: float) -> None:
    torch.manual_seed(0)
    out = dropout(torch.ones(1000, 1003), rate)
    dropped = float((out == 0).float().mean())
    assert abs(dropped - rate) < 4 * (rate * (1 - rate) / out.numel()) ** 0.5 + 1 / 65536
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


def test_threads_draw_independently() -> None:
    """What one thread drops does not depend on what another draws meanwhile."""
    layer, x, cpu = Dropout(0.5), torch.ones(1000), torch.device("cpu")

    def draw(seed: int) -> torch.Tensor:
        with seeded_dropout(seed, cpu):
            return torch.cat([layer(x) for _ in range(50)])

    alone = [draw(seed) for seed in range(6)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(draw, range(6)))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert not torch.equal(alone[0], alone[1])
