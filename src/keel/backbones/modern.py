"""A modern bidirectional encoder, as ModernBERT (Warner et al. 2024).

In: a flat batch. Out: one vector per token. Pre-norm blocks (Xiong et al. 2020), rotary positions (Su et al. 2021),
gated feed-forward (Shazeer 2020), local attention in two layers of three, and no biases. There is no position table to
limit a row's length, and with local attention the cost of long rows (8,192 tokens) grows mostly linearly.

Notable choices
- The first layer has no norm before its attention: the embeddings' norm comes right before it.
- The pooler is the published prediction head (dense, gelu, norm) on [CLS].
- As in BERT, the first layer's heads are initialised to attend to neighbouring tokens (docs/decisions/0011).
  `attention_init: noise` gives the published initialisation.

Shapes: T tokens, W width, V vocabulary.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone
from keel.layers.attention.context import AttentionContext
from keel.layers.attention.rotary import Rotary
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.attention.window import FULL, AttentionWindow
from keel.layers.block import PreNormBlock, attention_of, residual_layers, run_blocks
from keel.layers.dropout import Dropout
from keel.layers.embeddings import embed_tokens
from keel.layers.feed_forward import GatedFeedForward
from keel.layers.init_offsets import init_rotary_offsets
from keel.layers.init_weights import divide_weights, init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class ModernConfig(BackboneConfig):
    kind: Literal["modern"] = "modern"
    layers: int = Field(22, ge=1, le=1000)
    width: int = Field(768, ge=1, le=1 << 20)
    heads: int = Field(12, ge=1, le=1 << 20)
    feed_forward: int = Field(1152, ge=1, le=1 << 20)
    positions: int = Field(8192, ge=4, le=1 << 20, description="maximum row length in tokens")
    local_window: int = Field(
        128, ge=2, le=1 << 20, description="tokens that a local layer attends to, half on either side"
    )
    global_every: int = Field(3, ge=1, le=1 << 20, description="the first of every so many layers has full attention")
    global_rope_base: float = Field(160_000.0, gt=1)
    local_rope_base: float = Field(10_000.0, gt=1)
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu"
    dropout: float = Field(0.0, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    norm_epsilon: float = Field(1e-5, gt=0)
    attention_init: Literal["neighbours", "noise"] = "neighbours"

    @model_validator(mode="after")
    def _heads_are_even(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} is not an even multiple of heads {self.heads}")
        return self

    @property
    def max_length(self) -> int:
        return self.positions

    def is_global(self, layer: int) -> bool:
        return layer % self.global_every == 0


class Modern(Backbone):
    Config = ModernConfig

    def __init__(self, config: ModernConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.norm = _make_norm(config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(_make_block(config, number) for number in range(config.layers))
        self.final_norm = _make_norm(config)
        self.pooler = PredictionHead(config) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        config = self.config
        x = pad_to_multiple(self.dropout(self.norm(embed_tokens(self.tokens, batch))))
        local, far = (
            AttentionContext(batch.lengths, rotary=Rotary.of(batch.positions, self.width // config.heads, base, len(x)))
            for base in (config.local_rope_base, config.global_rope_base)
        )
        contexts = [far if config.is_global(number) else local for number in range(config.layers)]
        return run_blocks(self.blocks, x, batch, all_layers, contexts, self.final_norm)

    def token_embeddings(self) -> Tensor:
        return self.tokens.weight

    def token_head(self) -> TokenHead:
        return TokenHead(self.width, self.token_embeddings(), "gelu", self.config.norm_epsilon, bias=False)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        config = self.config
        init_normal(self, config.init_std, generator)
        divide_weights(residual_layers(self.blocks), (2 * config.layers) ** 0.5)
        if config.attention_init == "neighbours":
            init_rotary_offsets(attention_of(self.blocks[0]), self.tokens, config.init_std, config.global_rope_base)


class PredictionHead(nn.Module):
    """norm(gelu(dense(x))), as in the published classifiers before their last layer."""

    def __init__(self, config: ModernConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width, bias=False)
        self.norm = _make_norm(config)

    def forward(self, rows: Tensor) -> Tensor:
        result: Tensor = self.norm(F.gelu(self.dense(rows)))
        return result


def _make_block(config: ModernConfig, number: int) -> PreNormBlock:
    half = config.local_window // 2
    window = FULL if config.is_global(number) else AttentionWindow(half, half)
    return PreNormBlock(
        _make_norm(config) if number else nn.Identity(),
        SelfAttention(config.width, config.heads, config.attention_dropout, bias=False, window=window),
        _make_norm(config),
        GatedFeedForward(config.width, config.feed_forward, config.activation, config.dropout),
        config.dropout,
    )


def _make_norm(config: ModernConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, eps=config.norm_epsilon, bias=False)
