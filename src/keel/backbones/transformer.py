"""The Transformer's encoder (Vaswani et al. 2017): sinusoidal positions on scaled embeddings, post-norm blocks.

In: a flat batch. Out: one vector per token. With a decoder on top (`tasks/translate.py`) it is the complete
Transformer; without one it is a backbone like any other, so a translator's encoder can be used for other tasks (McCann
et al. 2017). BERT added segments, a norm after the embeddings, and learned positions.

Notable choices
- `position` also offers learned and rotary positions, so that the three can be compared with nothing else changed.
- Weights are initialised with Glorot's method, as in the paper's program; embeddings start small and are multiplied by
  sqrt(W).
- The first layer's heads are initialised to attend to neighbouring tokens (docs/decisions/0011), the decoder's to the
  previous tokens and to the same position of the source (0020); `attention_init: noise` is the published one.

Shapes: T tokens, R rows, W width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone
from keel.layers.attention.context import AttentionContext
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.block import PostNormBlock, attention_of, residual_layers, run_blocks
from keel.layers.dropout import Dropout
from keel.layers.embeddings import embed_tokens
from keel.layers.feed_forward import FeedForward
from keel.layers.init_offsets import init_sinusoid_offsets, neighbour_offsets, reveal_waves
from keel.layers.init_weights import divide_weights, init_glorot, init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.position import Positions
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class TransformerConfig(BackboneConfig):
    kind: Literal["transformer"] = "transformer"
    layers: int = Field(6, ge=1, le=1000)
    width: int = Field(512, ge=2, le=1 << 20)
    heads: int = Field(8, ge=1, le=1 << 20)
    feed_forward: int = Field(2048, ge=1, le=1 << 20)
    position: Literal["sinusoid", "learned", "rotary"] = "sinusoid"
    attention_init: Literal["neighbours", "noise"] = "neighbours"
    positions: int = Field(512, ge=4, le=1 << 20, description="maximum row length in tokens")
    activation: Literal["relu", "gelu"] = "relu"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    norm_epsilon: float = Field(1e-5, gt=0)

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.position == "rotary" and self.width // self.heads % 2:
            raise ValueError(f"rotary positions need heads of even size, found {self.width // self.heads}")
        return self

    @property
    def max_length(self) -> int:
        return self.positions


class Transformer(Backbone):
    Config = TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = Positions(config.position, config.width, config.heads, config.positions)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(_make_block(config) for _ in range(config.layers))
        self.pooler = Pooler(config.width) if config.pooler else None
        self.offsets_initialised = False  # True: a decoder's heads should be initialised to offsets too

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        x = pad_to_multiple(embed_tokens(self.tokens, batch) * self.width**0.5)
        x, rotary = self.positions(x, batch.positions)
        context = AttentionContext(batch.lengths, rotary=rotary)
        return run_blocks(self.blocks, self.dropout(x), batch, all_layers, context)

    def token_embeddings(self) -> Tensor:
        return self.tokens.weight

    def token_head(self) -> TokenHead:
        config = self.config
        return TokenHead(config.width, self.token_embeddings(), config.activation, config.norm_epsilon)

    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        init_glorot(self, generator)
        if self.config.attention_init == "neighbours" and self.config.position == "sinusoid":
            self._init_offsets()

    def _init_offsets(self) -> None:
        """Initialises the first layer's heads to attend to neighbouring tokens."""
        self.offsets_initialised = reveal_waves(self.tokens, self.config.heads)
        if self.offsets_initialised:
            attention = attention_of(self.blocks[0])
            query, key, _ = attention.qkv.weight.detach().chunk(3)
            init_sinusoid_offsets(query, key, attention.heads, neighbour_offsets(attention.heads))
            divide_weights(residual_layers(self.blocks), 2)


def _make_block(config: TransformerConfig) -> PostNormBlock:
    return PostNormBlock(
        SelfAttention(config.width, config.heads, config.attention_dropout),
        nn.LayerNorm(config.width, eps=config.norm_epsilon),
        FeedForward(config.width, config.feed_forward, config.activation, config.dropout),
        nn.LayerNorm(config.width, eps=config.norm_epsilon),
        config.dropout,
    )
