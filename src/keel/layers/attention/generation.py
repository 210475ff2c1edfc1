"""Generation with a causal model: each batch holds the next tokens of the rows given so far.

In: a model. Out: the same model, with a key/value cache in every self-attention layer while the context is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from keel.layers.attention.cache import KeyValueCache
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.attention.window import CAUSAL


@contextmanager
def caching(model: nn.Module) -> Iterator[None]:
    """Inside this context, a batch continues the rows of the batches before it."""
    layers = attention_layers(model)
    for layer in layers:
        assert layer.window == CAUSAL, "only a causal model can generate from a key/value cache"
        layer.cache = KeyValueCache()
    try:
        yield
    finally:
        for layer in layers:
            layer.cache = None


def pick_rows(model: nn.Module, rows: Tensor) -> None:
    """Keeps these rows of every layer's cache; an index may be repeated."""
    for layer in attention_layers(model):
        assert layer.cache is not None
        layer.cache.pick(rows)


def attention_layers(model: nn.Module) -> list[SelfAttention]:
    return [part for part in model.modules() if isinstance(part, SelfAttention)]
