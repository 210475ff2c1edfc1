"""Shared by BERT, RoBERTa, ELECTRA and ALBERT: their config, the construction of their layers, and initialisation.

In: a config. Out: embeddings, blocks and initial values; each backbone's file assembles them.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from keel.configs import BackboneConfig, Options
from keel.layers.attention.self_attention import ROLES, SelfAttention
from keel.layers.attention.window import CAUSAL, FULL
from keel.layers.block import PostNormBlock
from keel.layers.embeddings import Embeddings
from keel.layers.feed_forward import FeedForward
from keel.layers.init_offsets import init_learned_offsets, init_learned_positions

SHARED: dict[str, tuple[int, int, int]] = {"none": ROLES, "qk": (0, 0, 1), "kv": (0, 1, 1), "qkv": (0, 0, 0)}


class AttentionSection(Options):
    """Ablations of attention; the defaults are the published model."""

    causal: bool = Field(False, description="a token attends only to itself and the tokens before it")
    shared: Literal["none", "qk", "kv", "qkv"] = Field("none", description="which projections share their weights")
    scaled: bool = Field(True, description="divide dot products by the square root of the head size")


class PostNormConfig(BackboneConfig):
    layers: int = Field(12, ge=1, le=1000)
    width: int = Field(768, ge=1, le=1 << 20)
    heads: int = Field(12, ge=1, le=1 << 20)
    feed_forward: int = Field(3072, ge=1, le=1 << 20)
    positions: int = Field(512, ge=4, le=1 << 20)
    segments: int = Field(2, ge=1, le=1 << 20)
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    norm_epsilon: float = Field(1e-12, gt=0)
    position_init: Literal["sinusoid", "noise"] = "sinusoid"
    attention_init: Literal["neighbours", "noise"] = "neighbours"
    learn_positions: bool = Field(True, description="false: position embeddings keep their initial values")
    attention: AttentionSection = AttentionSection()
    pooler: bool = True

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self

    @property
    def context(self) -> Literal["both", "left"]:
        return "left" if self.attention.causal else "both"

    @property
    def max_length(self) -> int:
        return self.positions

    @property
    def embedding(self) -> int:
        """The width of the embeddings: the model's width, unless a backbone overrides it."""
        return self.width


class BidirectionalConfig(PostNormConfig):
    """Config of a backbone without a causal variant."""

    @model_validator(mode="after")
    def _is_bidirectional(self) -> Self:
        if self.attention.causal:
            raise ValueError("this backbone is bidirectional only; for a causal model use bert, roberta or gpt")
        return self


class OffsetConfig(PostNormConfig):
    """Config of RoBERTa and XLM-R: one segment, and position indices that start after the padding token's id."""

    segments: int = Field(1, ge=1, le=1 << 20, description="segment embeddings; only the first is used")
    padding: int | None = Field(None, ge=0, description="id of the padding token; null: the tokenizer's")
    norm_epsilon: float = Field(1e-5, gt=0)
    pooler: bool = False

    @property
    def first_position(self) -> int:
        assert self.padding is not None, "the padding token is known before the model is built"
        return self.padding + 1


def make_embeddings(config: PostNormConfig, first_position: int = 0, fixed_segment: bool = False) -> Embeddings:
    assert config.vocabulary is not None
    embeddings = Embeddings(
        config.vocabulary,
        config.positions,
        config.segments,
        config.embedding,
        dropout=config.dropout,
        norm_epsilon=config.norm_epsilon,
        first_position=first_position,
        fixed_segment=fixed_segment,
    )
    embeddings.positions.weight.requires_grad_(config.learn_positions)
    return embeddings


def make_attention(config: PostNormConfig) -> SelfAttention:
    return SelfAttention(
        config.width,
        config.heads,
        config.attention_dropout,
        window=CAUSAL if config.attention.causal else FULL,
        roles=SHARED[config.attention.shared],
        scale=None if config.attention.scaled else 1.0,
    )


def make_norm(config: PostNormConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, eps=config.norm_epsilon)


def make_block(config: PostNormConfig) -> PostNormBlock:
    return PostNormBlock(
        make_attention(config),
        make_norm(config),
        FeedForward(config.width, config.feed_forward, config.activation, config.dropout),
        make_norm(config),
        config.dropout,
    )


@torch.no_grad()
def init_positions(embeddings: Embeddings, first: SelfAttention | None, config: PostNormConfig) -> None:
    """Initialises learned positions with waves at the scale of the other embeddings, and the heads of `first` to attend
    to neighbouring tokens. Initialised with noise, every small BERT stays on a plateau until it has learned to attend
    to neighbours; this way it trains about four times as fast (docs/notebook.md). Only initial values change: the model
    is still BERT.

    `first`: the attention of the first layer if no other layer shares it; else None."""
    if config.position_init == "noise":
        return
    table = embeddings.positions.weight[embeddings.first_position :]
    init_learned_positions(table, config.width // config.heads, config.init_std)
    if first is not None and config.attention_init == "neighbours" and config.attention.shared == "none":
        init_learned_offsets(first, config.attention.causal)
