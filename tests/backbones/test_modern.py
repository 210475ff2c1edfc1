"""Initial weights of the modern encoder: the first layer attends to neighbours at every position."""

from __future__ import annotations

import pytest
import torch

from keel.backbones.modern import Modern, ModernConfig
from keel.layers.block import attention_of
from keel.layers.init_offsets import MOST_HEADS


def initialised(**shape: object) -> Modern:
    model = Modern(ModernConfig(vocabulary=500, layers=2, feed_forward=64, **shape))  # type: ignore[arg-type]
    model.init_weights(torch.Generator().manual_seed(1))
    return model.eval()


def rotated(x: torch.Tensor, position: int, base: float) -> torch.Tensor:
    """One head's query or key at a position: the pairs (i, i + D/2) as complex numbers, each times e^(i x angle)."""
    size = len(x)
    rates = base ** (-torch.arange(0, size, 2) / size)
    pairs = torch.complex(x[: size // 2], x[size // 2 :])
    moved = pairs * torch.polar(torch.ones(size // 2), position * rates)
    return torch.cat([moved.real, moved.imag])


@pytest.mark.parametrize("width, heads, deviation", [(128, 2, 0.05), (256, 4, 0.035), (768, 12, 0.02)])
@pytest.mark.parametrize("first", [0, 5000])
def test_each_head_starts_at_its_own_offset(width: int, heads: int, deviation: float, first: int) -> None:
    model = initialised(width=width, heads=heads, init_std=deviation)
    ids = torch.randint(5, 500, (60,), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = model.norm(model.tokens(ids))
        query, key, _ = attention_of(model.blocks[0]).qkv(x).view(60, 3, heads, -1).unbind(1)
    base = model.config.global_rope_base
    for head in range(min(heads, MOST_HEADS)):
        offset = (head // 2 + 1) * (1 if head % 2 else -1)
        for place in (20, 30, 40):
            rotated_query = rotated(query[place, head], first + place, base)
            keys = torch.stack([rotated(key[other, head], first + other, base) for other in range(60)])
            weights = torch.softmax(keys @ rotated_query / (width // heads) ** 0.5, 0)
            assert weights[place + offset] > 0.5, (head, offset)  # a uniform head would give 0.02


def test_noise_gives_the_published_initialisation() -> None:
    model = initialised(width=64, heads=4, attention_init="noise")
    for weight in (model.tokens.weight.data, attention_of(model.blocks[0]).qkv.weight.data):
        assert float(weight.std()) == pytest.approx(0.02, rel=0.05) and float(weight.abs().max()) < 0.12
