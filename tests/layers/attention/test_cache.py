"""Attention token by token, with a cache of keys and values, equals attention over the whole row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from keel.layers.attention.context import AttentionContext, ScoreBias
from keel.layers.attention.generation import caching, pick_rows
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.attention.window import CAUSAL

ROWS, LENGTH, WIDTH = 3, 7, 8


def alibi(queries: Tensor, keys: Tensor) -> Tensor:
    """A bias that falls with the distance, more steeply for the second head."""
    return torch.tensor([0.5, 2.0])[:, None, None] * (keys - queries[:, None])


@pytest.mark.parametrize("bias", [None, alibi], ids=["plain", "with a bias"])
@pytest.mark.parametrize("steps", [(1,) * 7, (3, 1, 1, 2), (7,)], ids=str)
def test_token_by_token_equals_the_whole_row(steps: tuple[int, ...], bias: ScoreBias | None) -> None:
    torch.manual_seed(2)
    layer = SelfAttention(WIDTH, 2, 0.0, window=CAUSAL).eval()
    x = torch.randn(ROWS, LENGTH, WIDTH)
    with torch.no_grad():
        whole = layer(x.flatten(0, 1), AttentionContext((LENGTH,) * ROWS, bias=bias)).view(ROWS, LENGTH, WIDTH)
        with caching(layer):
            found = [
                layer(part.flatten(0, 1), AttentionContext((part.shape[1],) * ROWS, bias=bias)).view(part.shape)
                for part in x.split(steps, 1)
            ]
    torch.testing.assert_close(torch.cat(found, 1), whole, rtol=1e-5, atol=1e-6)


def test_rows_can_be_picked_while_a_text_is_generated() -> None:
    """As beam search does: the second row goes on twice, the others are dropped."""
    torch.manual_seed(3)
    layer = SelfAttention(WIDTH, 2, 0.0, window=CAUSAL).eval()
    x, last = torch.randn(ROWS, LENGTH, WIDTH), torch.randn(2, WIDTH)
    with torch.no_grad():
        with caching(layer):
            layer(x.flatten(0, 1), AttentionContext((LENGTH,) * ROWS))
            pick_rows(layer, torch.tensor([1, 1]))
            found = layer(last, AttentionContext((1, 1)))
        for token, mine in zip(last, found, strict=True):
            alone = layer(torch.cat([x[1], token[None]]), AttentionContext((LENGTH + 1,)))
            torch.testing.assert_close(mine, alone[-1], rtol=1e-5, atol=1e-6)
    assert layer.cache is None
