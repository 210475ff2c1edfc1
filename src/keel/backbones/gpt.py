"""A causal Transformer (Radford et al. 2018, 2019) with pre-norm blocks.

In: a flat batch. Out: one vector per token, from which the next one is predicted. There are no segments; a row is
represented by its last token, the only one that attends to the full row.

Notable choice: positions and the first layer's attention are initialised as BERT's are here (`layers/init_offsets.py`).

Shapes: T tokens, W width, V vocabulary.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.attention.window import CAUSAL
from keel.layers.block import PreNormBlock, attention_of, residual_layers, run_blocks
from keel.layers.dropout import Dropout
from keel.layers.embeddings import embed_tokens
from keel.layers.feed_forward import FeedForward
from keel.layers.init_offsets import init_learned_offsets, init_learned_positions
from keel.layers.init_weights import divide_weights, init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TiedHead
from keel.values import Batch, Encoding


class GptConfig(BackboneConfig):
    kind: Literal["gpt"] = "gpt"
    layers: int = Field(12, ge=1, le=1000)
    width: int = Field(768, ge=1, le=1 << 20)
    heads: int = Field(12, ge=1, le=1 << 20)
    feed_forward: int | None = Field(None, ge=1, le=1 << 20, description="null: four times the width")
    positions: int = Field(1024, ge=4, le=1 << 20)
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu_new"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    norm_epsilon: float = Field(1e-5, gt=0)
    position_init: Literal["sinusoid", "noise"] = "sinusoid"
    attention_init: Literal["neighbours", "noise"] = "neighbours"

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self

    @property
    def context(self) -> Literal["left"]:
        return "left"

    @property
    def max_length(self) -> int:
        return self.positions


class Gpt(Backbone):
    Config = GptConfig

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(_make_block(config) for _ in range(config.layers))
        self.norm = _make_norm(config)
        self.pooler = Pooler(config.width) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        x = pad_to_multiple(self.dropout(embed_tokens(self.tokens, batch) + self.positions(batch.positions)))
        return run_blocks(self.blocks, x, batch, all_layers, final_norm=self.norm)

    def token_embeddings(self) -> Tensor:
        return self.tokens.weight

    def token_head(self) -> TiedHead:
        return TiedHead()

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        config = self.config
        init_normal(self, config.init_std, generator)
        if config.position_init == "sinusoid":
            init_learned_positions(self.positions.weight, config.width // config.heads, config.init_std)
            if config.attention_init == "neighbours":
                init_learned_offsets(attention_of(self.blocks[0]), causal=True)
        divide_weights(residual_layers(self.blocks), (2 * config.layers) ** 0.5)


def _make_block(config: GptConfig) -> PreNormBlock:
    return PreNormBlock(
        _make_norm(config),
        SelfAttention(config.width, config.heads, config.attention_dropout, window=CAUSAL),
        _make_norm(config),
        FeedForward(config.width, config.feed_forward or 4 * config.width, config.activation, config.dropout),
        config.dropout,
    )


def _make_norm(config: GptConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, eps=config.norm_epsilon)
