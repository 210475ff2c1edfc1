"""Generating with a causal model: each batch is the next tokens of the rows it has read so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from keel.layers.attention.cache import KeyValueCache
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.attention.window import CAUSAL


@contextmanager
def caching(model: nn.Module) -> Iterator[None]:
    """Within this, batches continue the rows that the model has read so far."""
    layers = attention_layers(model)
    for layer in layers:
        assert layer.window == CAUSAL, "only a causal model can continue from what it has read"
        layer.cache = KeyValueCache()
    try:
        yield
    finally:
        for layer in layers:
            layer.cache = None


def pick_rows(model: nn.Module, rows: Tensor) -> None:
    """Continues from these rows of what was read."""
    for layer in attention_layers(model):
        assert layer.cache is not None
        layer.cache.pick(rows)


def attention_layers(model: nn.Module) -> list[SelfAttention]:
    return [part for part in model.modules() if isinstance(part, SelfAttention)]
