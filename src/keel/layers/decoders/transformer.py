"""The Transformer's decoder (Vaswani et al. 2017): attends to what it has written, and to the encoded source.

In: the embedded tokens of the texts being written, flat, and the encoder's vectors. Out: one vector per token, from
which the next one is predicted. In training all tokens of a text are computed at once, each seeing what came before it;
in generation token by token, with keys and values cached (`writing`).

Shapes: Q tokens written, W width.
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
    """What a decoder's blocks are like."""

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
    """The encoded source as each layer sees it."""

    layers: list[EncodedSource]

    def pick(self, rows: Tensor) -> Sources:
        return Sources([source.pick(rows) for source in self.layers])


class DecoderBlock(nn.Module):
    """Post-norm: self-attention, attention to the source, feed-forward."""

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
        """The weights of the attention to the source."""
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
        """The first layer's heads attend to what was just written, those of every layer to the same place of the source
        and around it; what layers add starts at half of its size, as the encoder's."""
        attention = self._blocks()[0].attention
        query, key, _ = attention.qkv.weight.detach().chunk(3)
        init_sinusoid_offsets(query, key, attention.heads, previous_offsets(attention.heads))
        for block in self._blocks():
            across = block.cross_attention
            key, _ = across.key_value.weight.detach().chunk(2)
            init_sinusoid_offsets(across.query.weight.detach(), key, across.heads, centred_offsets(across.heads))
            divide_weights([block.attention.out, across.out, block.feed_forward.down], 2)

    def read(self, vectors: Tensor, lengths: tuple[int, ...], rows: Tensor) -> Sources:
        """The source as each layer will see it. `rows`: one vector per source, which this decoder does not need."""
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
        """Within this, each call gives the next token of every row."""
        with caching(self):
            yield

    def pick(self, rows: Tensor) -> None:
        """Continues from these rows of what was written."""
        pick_rows(self, rows)

    @torch.no_grad()
    def attention_weights(
        self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], sources: Sources
    ) -> list[Tensor]:
        """The weights of every layer's attention to the source."""
        x, rotary = self.positions(embedded, positions)
        context, padding, weights = AttentionContext(lengths, rotary=rotary), PaddedRows.of(lengths, x.device), []
        for block, source in zip(self._blocks(), sources.layers, strict=True):
            weights.append(block.source_weights(x, context, padding, source))
            x = block(x, context, padding, source)
        return weights
