"""The Transformer's decoder (Vaswani et al. 2017): causal self-attention, and cross-attention to the encoded source.

In: the embedded target tokens, flat, and the encoder's vectors. Out: one vector per target token, from which the next
one is predicted. In training all tokens are computed in parallel with a causal mask; in generation token by token, with
a key/value cache (`writing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from keel.layers.attention.context import AttentionContext
from keel.layers.attention.cross_attention import CrossAttention, EncodedSource
from keel.layers.attention.generation import caching, pick_rows
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.attention.window import CAUSAL
from keel.layers.dropout import Dropout
from keel.layers.feed_forward import FeedForward
from keel.layers.init_offsets import centred_offsets, init_sinusoid_offsets, previous_offsets
from keel.layers.init_weights import divide_weights
from keel.layers.padded_rows import PaddedRows
from keel.layers.padding import pad_to_multiple
from keel.layers.position import Positions


class Shape(Protocol):
    """The dimensions and rates of a decoder's blocks."""

    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def feed_forward(self) -> int: ...
    @property
    def activation(self) -> str: ...
    @property
    def dropout(self) -> float: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def norm_epsilon(self) -> float: ...


@dataclass(frozen=True)
class Sources:
    """The source's keys and values for each layer."""

    layers: list[EncodedSource]

    def pick(self, rows: Tensor) -> Sources:
        return Sources([source.pick(rows) for source in self.layers])


class DecoderBlock(nn.Module):
    """Post-norm: self-attention, cross-attention, feed-forward."""

    def __init__(self, shape: Shape, source_width: int) -> None:
        super().__init__()
        self.attention = SelfAttention(shape.width, shape.heads, shape.attention_dropout, window=CAUSAL)
        self.attention_norm = nn.LayerNorm(shape.width, eps=shape.norm_epsilon)
        self.cross_attention = CrossAttention(shape.width, source_width, shape.heads, shape.attention_dropout)
        self.cross_attention_norm = nn.LayerNorm(shape.width, eps=shape.norm_epsilon)
        self.feed_forward = FeedForward(shape.width, shape.feed_forward, shape.activation, shape.dropout)
        self.feed_forward_norm = nn.LayerNorm(shape.width, eps=shape.norm_epsilon)
        self.dropout = Dropout(shape.dropout)

    def forward(self, x: Tensor, context: AttentionContext, padding: PaddedRows, source: EncodedSource) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, context)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, padding, source)))
        return self.feed_forward_norm(x + self.feed_forward(x))

    def source_weights(
        self, x: Tensor, context: AttentionContext, padding: PaddedRows, source: EncodedSource
    ) -> Tensor:
        """The cross-attention weights."""
        x = self.attention_norm(x + self.dropout(self.attention(x, context)))
        return self.cross_attention.weights(x, padding, source)


class TransformerDecoder(nn.Module):
    def __init__(self, shape: Shape, source_width: int, layers: int, positions: Positions) -> None:
        super().__init__()
        self.width = int(shape.width)
        self.positions = positions
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(DecoderBlock(shape, source_width) for _ in range(layers))

    def _blocks(self) -> Sequence[DecoderBlock]:
        return [block for block in self.blocks if isinstance(block, DecoderBlock)]

    def init_offsets(self) -> None:
        """Initialises the first layer's self-attention to attend to the previous tokens, and every layer's
        cross-attention to the same position of the source and its neighbours; halves the weights of the layers that
        add to the residual stream, as the encoder does."""
        attention = self._blocks()[0].attention
        query, key, _ = attention.qkv.weight.detach().chunk(3)
        init_sinusoid_offsets(query, key, attention.heads, previous_offsets(attention.heads))
        for block in self._blocks():
            across = block.cross_attention
            key, _ = across.key_value.weight.detach().chunk(2)
            init_sinusoid_offsets(across.query.weight.detach(), key, across.heads, centred_offsets(across.heads))
            divide_weights([block.attention.out, across.out, block.feed_forward.down], 2)

    def read(self, vectors: Tensor, lengths: tuple[int, ...], rows: Tensor) -> Sources:
        """The source's keys and values for each layer. `rows`: one vector per source, unused by this decoder."""
        padding = PaddedRows.of(lengths, vectors.device)
        return Sources([block.cross_attention.read(vectors, padding) for block in self._blocks()])

    def forward(self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], sources: Sources) -> Tensor:
        x, rotary = self.positions(pad_to_multiple(embedded), positions)
        x = self.dropout(x)
        context, padding = AttentionContext(lengths, rotary=rotary), PaddedRows.of(lengths, x.device)
        for block, source in zip(self._blocks(), sources.layers, strict=True):
            x = block(x, context, padding, source)
        return x[: len(embedded)]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Inside this context, each call gets the next token of every row."""
        with caching(self):
            yield

    def pick(self, rows: Tensor) -> None:
        """Keeps these rows of the caches; an index may be repeated."""
        pick_rows(self, rows)

    @torch.no_grad()
    def attention_weights(
        self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], sources: Sources
    ) -> list[Tensor]:
        """The cross-attention weights of every layer."""
        x, rotary = self.positions(embedded, positions)
        context, padding, weights = AttentionContext(lengths, rotary=rotary), PaddedRows.of(lengths, x.device), []
        for block, source in zip(self._blocks(), sources.layers, strict=True):
            weights.append(block.source_weights(x, context, padding, source))
            x = block(x, context, padding, source)
        return weights
