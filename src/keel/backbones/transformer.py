"""The Transformer's encoder (Vaswani et al. 2017): sinusoidal positions on scaled embeddings, norms behind the sums.

In: a flat batch. Out: one vector per token. With a decoder on top (`tasks/translate.py`) it is the whole Transformer;
without one it is a backbone like any other, so a translator's encoder can serve other tasks (McCann et al. 2017).
BERT is its descendant: it added segments, a norm behind the embeddings, and learned positions.

Notable choices
- `position` also offers learned and rotary positions, so that the three can be compared with nothing else changed.
- Fresh weights are Glorot's, as in the paper's program; embeddings start small and are multiplied by the root of W.
- The first layer's heads start out looking at their neighbours (docs/decisions/0011), as the decoder's look at what was
  just written and at the same place of what was read (0020); `attention_start: noise` is the published start.

Shapes: T tokens, R rows, W width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.checkpoint import own_family
from keel.interfaces import Backbone, Batch, Encoding
from keel.layers.aim import beside
from keel.layers.attention import SelfAttention
from keel.layers.block import Block
from keel.layers.dropout import Dropout
from keel.layers.filler import fill_up
from keel.layers.position import Positions, aim_by_waves, show_waves
from keel.layers.start import halve, start_as_glorot, start_weights


class TransformerConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["transformer"] = "transformer"
    vocabulary: int | None = Field(None, ge=6, description="tokens; null: as many as the tokenizer has")
    layers: int = Field(6, ge=1)
    width: int = Field(512, ge=2)
    heads: int = Field(8, ge=1)
    feed_forward: int = Field(2048, ge=1)
    position: Literal["sinusoid", "learned", "rotary"] = "sinusoid"
    attention_start: Literal["neighbours", "noise"] = "neighbours"
    positions: int = Field(512, ge=4, description="tokens of a row at the most")
    activation: Literal["relu", "gelu"] = "relu"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    norm_epsilon: float = Field(1e-5, gt=0)
    start_deviation: float = Field(0.02, gt=0, description="of what a task puts on top")
    pooler: bool = False

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.position == "rotary" and self.width // self.heads % 2:
            raise ValueError(f"rotary positions need heads of even size, found {self.width // self.heads}")
        return self


class Transformer(Backbone):
    Config = TransformerConfig
    tokens: nn.Embedding

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = config.width
        self.longest = config.positions
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = Positions(config.position, config.width, config.heads, config.positions)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None
        self.aimed = False  # its heads have just been told where to look, and a decoder's can be

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        x, turn = self.positions(fill_up(self.tokens(batch.ids) * self.width**0.5), batch.positions)
        x = self.dropout(x)
        layers = [x]
        asked = None if every_layer else batch.asked
        for block in self.blocks:
            x = block(x, batch.lengths, asked if block is self.blocks[-1] else None, turn)
            layers.append(x)
        return Encoding.of(batch, layers, asked, every_layer)

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        first = self.row_vectors(vectors, batch)
        return first if self.pooler is None else torch.tanh(self.pooler(first))

    def token_table(self) -> Tensor:
        return self.tokens.weight

    def start(self, generator: torch.Generator) -> None:
        start_weights(self, self.config.start_deviation, generator)
        start_as_glorot(self, generator)
        if self.config.attention_start == "neighbours" and self.config.position == "sinusoid":
            self._aim()

    def _aim(self) -> None:
        """The first layer's heads look beside each token, by waves that are to be seen."""
        attention: SelfAttention = self.blocks[0].attending.attention  # type: ignore[union-attr,assignment]
        self.aimed = show_waves(self.tokens, attention.heads)
        if self.aimed:
            query, key, _ = attention.qkv.weight.detach().chunk(3)
            aim_by_waves(query, key, attention.heads, beside(attention.heads))
            for block in self.blocks:
                halve(block.attending.attention.out, block.feed.shrink)  # type: ignore[union-attr,arg-type]


Transformer.published = own_family("transformer", Transformer, {"attention_start": "noise"})
