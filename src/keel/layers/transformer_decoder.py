"""The Transformer's decoder (Vaswani et al. 2017): looks at what it has written, and at what was read.

In: the embedded tokens of the texts being written, flat, and the encoder's vectors. Out: one vector per token, from
which the next one is guessed. In training all places of a text are computed at once, each seeing what came before it;
in writing, token by token with what was computed kept (`remembering`).

    x = norm(x + self-attention(x)); x = norm(x + attention(x, source)); x = norm(x + feed-forward(x))

Shapes: Q tokens written, W width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from keel.layers.aim import around, behind
from keel.layers.attention import SelfAttention, remembering
from keel.layers.block import FeedForward
from keel.layers.cross_attention import CrossAttention, Padding, Source
from keel.layers.dropout import Dropout
from keel.layers.filler import fill_up
from keel.layers.look import LEFT
from keel.layers.position import Positions, aim_by_waves
from keel.layers.rotary import Turn
from keel.layers.start import halve


@dataclass(frozen=True)
class Sources:
    layers: list[Source]

    def pick(self, rows: Tensor) -> Sources:
        return Sources([source.pick(rows) for source in self.layers])


class TransformerDecoder(nn.Module):
    """`shape`: a backbone's config with what a block needs to know (`layers/block.py`)."""

    def __init__(self, shape: Any, source_width: int, layers: int, positions: Positions) -> None:
        super().__init__()
        self.width = int(shape.width)
        self.positions = positions
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(DecoderBlock(shape, source_width) for _ in range(layers))

    def aim(self) -> None:
        """Fresh heads of the first layer look at what was just written, those of every layer at the same place of what
        was read and around it; what layers add starts at half of its size, as the encoder's."""
        attention: SelfAttention = self.blocks[0].attention  # type: ignore[assignment]
        query, key, _ = attention.qkv.weight.detach().chunk(3)
        aim_by_waves(query, key, attention.heads, behind(attention.heads))
        for block in self.blocks:
            across: CrossAttention = block.across  # type: ignore[assignment]
            key, _ = across.key_value.weight.detach().chunk(2)
            aim_by_waves(across.query.weight.detach(), key, across.heads, around(across.heads))
            halve(block.attention.out, across.out, block.feed.shrink)  # type: ignore[union-attr,arg-type]

    def read(self, vectors: Tensor, lengths: tuple[int, ...], whole: Tensor) -> Sources:
        """What each layer will look at."""
        padding = Padding.of(lengths, vectors.device)
        return Sources([block.across.read(vectors, padding) for block in self.blocks])  # type: ignore[union-attr,operator]

    def forward(self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], sources: Sources) -> Tensor:
        x, turn = self.positions(fill_up(embedded), positions)
        x = self.dropout(x)
        padding = Padding.of(lengths, x.device)
        for block, source in zip(self.blocks, sources.layers, strict=True):
            x = block(x, lengths, padding, source, turn)
        return x[: len(embedded)]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within this, each call gives the next token of every row."""
        with remembering(self):
            yield

    def pick(self, rows: Tensor) -> None:
        """Goes on from these rows of what was written."""
        for block in self.blocks:
            block.attention.memory.pick(rows)  # type: ignore[union-attr,operator]

    @torch.no_grad()
    def look(self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], sources: Sources) -> list[Tensor]:
        """The weights of every layer's attention to the source."""
        x, turn = self.positions(embedded, positions)
        padding, found = Padding.of(lengths, x.device), []
        for block, source in zip(self.blocks, sources.layers, strict=True):
            found.append(block.look(x, lengths, padding, source, turn))  # type: ignore[operator]
            x = block(x, lengths, padding, source, turn)
        return found


class DecoderBlock(nn.Module):
    def __init__(self, shape: Any, source_width: int) -> None:
        super().__init__()
        self.attention = SelfAttention(shape.width, shape.heads, shape.attention_dropout, look=LEFT)
        self.norm = nn.LayerNorm(shape.width, eps=shape.norm_epsilon)
        self.across = CrossAttention(shape.width, source_width, shape.heads, shape.attention_dropout)
        self.across_norm = nn.LayerNorm(shape.width, eps=shape.norm_epsilon)
        self.feed = FeedForward(shape)
        self.dropout = Dropout(shape.dropout)

    def _before(self, x: Tensor, lengths: tuple[int, ...], turn: Turn | None) -> Tensor:
        found: Tensor = self.norm(x + self.dropout(self.attention(x, lengths, None, turn)))
        return found

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], padding: Padding, source: Source, turn: Turn | None
    ) -> Tensor:
        x = self._before(x, lengths, turn)
        x = self.across_norm(x + self.dropout(self.across(x, padding, source)))
        found: Tensor = self.feed(x)
        return found

    def look(self, x: Tensor, lengths: tuple[int, ...], padding: Padding, source: Source, turn: Turn | None) -> Tensor:
        return self.across.weights(self._before(x, lengths, turn), padding, source)
