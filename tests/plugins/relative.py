"""A plug-in: a Transformer encoder whose positions are a learned bias on the attention scores (Raffel et al. 2020)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone
from keel.layers.attention.context import AttentionContext
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.block import PreNormBlock, run_blocks
from keel.layers.feed_forward import FeedForward
from keel.layers.init_weights import init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class RelativeConfig(BackboneConfig):
    kind: Literal["relative"] = "relative"
    layers: int = Field(2, ge=1)
    width: int = Field(64, ge=1)
    heads: int = Field(4, ge=1)
    feed_forward: int = Field(128, ge=1)
    buckets: int = Field(16, ge=4, description="of distances, half of them on either side")
    dropout: float = Field(0.1, ge=0, lt=1)


class RelativeBias(nn.Module):
    """(H, Q, K): one number for each head and bucket of distances; near distances have a bucket each."""

    def __init__(self, buckets: int, heads: int) -> None:
        super().__init__()
        self.half = buckets // 2
        self.table = nn.Embedding(2 * self.half, heads)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = keys[None, :] - queries[:, None]
        far, exact = distance.abs(), self.half // 2
        slope = (self.half - exact) / math.log(128 / max(1, exact))
        logarithmic = exact + ((far.clamp(min=1) / max(1, exact)).log() * slope).long().clamp(min=0)
        bucket = torch.where(far < exact, far, logarithmic).clamp(max=self.half - 1) + self.half * (distance > 0)
        bias: Tensor = self.table(bucket).permute(2, 0, 1)
        return bias


class Relative(Backbone):
    Config = RelativeConfig

    def __init__(self, config: RelativeConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.bias = RelativeBias(config.buckets, config.heads)
        self.blocks = nn.ModuleList(_make_block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.pooler = Pooler(config.width) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        x = pad_to_multiple(self.tokens(batch.ids))
        context = AttentionContext(batch.lengths, bias=self.bias)
        return run_blocks(self.blocks, x, batch, all_layers, context, self.norm)

    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)

    def token_embeddings(self) -> Tensor:
        return self.tokens.weight

    def token_head(self) -> TokenHead:
        return TokenHead(self.width, self.token_embeddings())


def _make_block(config: RelativeConfig) -> PreNormBlock:
    return PreNormBlock(
        nn.LayerNorm(config.width),
        SelfAttention(config.width, config.heads, config.dropout),
        nn.LayerNorm(config.width),
        FeedForward(config.width, config.feed_forward, "gelu", config.dropout),
        config.dropout,
    )
