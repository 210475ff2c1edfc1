"""DeBERTa v2 and v3 (He et al. 2021): BERT with disentangled attention to content and to relative positions.

In: a flat batch. Out: one vector per token. The defaults are those of v3: no position embeddings on the input, position
vectors in logarithmic buckets that share the projections of the tokens. v2 has the same form with other settings; its
larger models add a convolution beside the first layer.

Notable choices
- The enhanced mask decoder of v2 (absolute positions before the output layer) is not here, as in `transformers`: the
  masked-LM head of a published v2 was trained with it, and predicts badly without.
- v3 was pretrained with replaced-token detection, whose discriminator this is; here it is pretrained with masked
  language modelling.
- The published pooler is a dense layer and gelu on [CLS], part of its classification head.

Shapes: T tokens, W width, E width of an embedding.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone
from keel.layers.activations import ACTIVATIONS
from keel.layers.attention.context import AttentionContext
from keel.layers.attention.disentangled import DisentangledAttention, Product
from keel.layers.attention.relative import DistanceTable
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.block import PostNormBlock, needed, run_blocks
from keel.layers.dropout import Dropout
from keel.layers.embeddings import embed_tokens
from keel.layers.feed_forward import FeedForward
from keel.layers.init_weights import init_normal
from keel.layers.padded_rows import PaddedRows
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding

Activation = Literal["gelu", "gelu_new", "relu", "tanh"]


class DebertaConfig(BackboneConfig):
    kind: Literal["deberta"] = "deberta"
    layers: int = Field(12, ge=1, le=1000)
    width: int = Field(768, ge=1, le=1 << 20)
    heads: int = Field(12, ge=1, le=1 << 20)
    feed_forward: int = Field(3072, ge=1, le=1 << 20)
    positions: int = Field(512, ge=4, le=1 << 20, description="maximum row length in tokens")
    segments: int = Field(0, ge=0, le=1 << 20, description="segment embeddings; 0: none")
    embedding_width: int | None = Field(None, ge=1, le=1 << 20, description="null: the model's width")
    activation: Activation = "gelu"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    norm_epsilon: float = Field(1e-7, gt=0)
    absolute_positions: bool = Field(False, description="add position embeddings to those of the tokens")
    relative_positions: bool = Field(True, description="vectors for the distance of two tokens")
    products: tuple[Product, ...] = Field(
        ("c2p", "p2c"), description="of attention with positions: content to position, position to content"
    )
    share_projections: bool = Field(True, description="vectors of distances are projected as the tokens' are")
    distance_buckets: int = Field(256, ge=0, le=1 << 20, description="of distances, on either side; 0: no buckets")
    farthest: int = Field(512, ge=1, le=1 << 20, description="distances from here on are not told apart")
    norm_distances: bool = Field(True, description="a layer norm on the vectors of distances")
    convolution: int = Field(0, ge=0, le=1 << 10, description="its width, beside the first layer; odd; 0: none")
    convolution_groups: int = Field(1, ge=1, le=1 << 20)
    convolution_activation: Activation = "tanh"
    pooler_activation: Activation = "gelu"

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if len(set(self.products)) < len(self.products):
            raise ValueError("a product is listed twice")
        if self.distance_buckets and not 1 <= self.distance_buckets // 2 < self.farthest - 1:
            raise ValueError(
                f"distance_buckets {self.distance_buckets} with farthest {self.farthest}: half of the buckets must be "
                "at least 1, and less than farthest - 1"
            )
        if self.convolution and self.convolution % 2 == 0:
            raise ValueError(f"convolution {self.convolution} is even; its width must be odd")
        if self.width % self.convolution_groups:
            raise ValueError(f"width {self.width} is not a multiple of convolution_groups {self.convolution_groups}")
        return self

    @property
    def max_length(self) -> int:
        return self.positions

    @property
    def embedding(self) -> int:
        return self.embedding_width or self.width


class Deberta(Backbone):
    Config = DebertaConfig

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.embeddings = DebertaEmbeddings(config)
        norm = _make_norm(config) if config.norm_distances and config.relative_positions else None
        vectors = (config.width, config.distance_buckets, config.farthest, norm)
        self.distances = DistanceTable(*vectors) if config.relative_positions else None
        first, *others = (_make_block(config) for _ in range(config.layers))
        self.blocks = nn.ModuleList([ConvolvedBlock(first, config) if config.convolution else first, *others])
        self.pooler = Pooler(config.width, ACTIVATIONS[config.pooler_activation]) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        x = pad_to_multiple(self.embeddings(batch))
        distances = None if self.distances is None else self.distances(max(batch.lengths))
        context = AttentionContext(batch.lengths, distances=distances)
        return run_blocks(self.blocks, x, batch, all_layers, context)

    def token_embeddings(self) -> Tensor:
        return self.embeddings.tokens.weight

    def token_head(self) -> TokenHead:
        config = self.config
        return TokenHead(config.width, self.token_embeddings(), config.activation, config.norm_epsilon)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)


class DebertaEmbeddings(nn.Module):
    """Token embeddings, perhaps with positions and segments, projected to the model's width; then norm and dropout."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        assert config.vocabulary is not None
        size = config.embedding
        self.tokens = nn.Embedding(config.vocabulary, size)
        self.positions = nn.Embedding(config.positions, size) if config.absolute_positions else None
        self.segments = nn.Embedding(config.segments, size) if config.segments else None
        self.projection = nn.Linear(size, config.width, bias=False) if size != config.width else None
        self.norm = _make_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch) -> Tensor:
        x = embed_tokens(self.tokens, batch)
        if self.positions is not None:
            x = x + self.positions(batch.positions)
        if self.segments is not None:
            x = x + self.segments(batch.segments)
        if self.projection is not None:
            x = self.projection(x)
        embedded: Tensor = self.dropout(self.norm(x))
        return embedded


class ConvolvedBlock(nn.Module):
    """norm(block(x) + activation(convolution(x))): the first layer of v2's larger models."""

    def __init__(self, block: PostNormBlock, config: DebertaConfig) -> None:
        super().__init__()
        width, reach = config.width, (config.convolution - 1) // 2
        self.block = block
        self.convolution = nn.Conv1d(width, width, config.convolution, padding=reach, groups=config.convolution_groups)
        self.activation = ACTIVATIONS[config.convolution_activation]
        self.norm = _make_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        rows = PaddedRows.of(context.lengths, x.device)
        mixed = rows.flatten(self.convolution(rows.pad(x).transpose(1, 2)).transpose(1, 2))
        local = self.activation(self.dropout(F.pad(mixed, (0, 0, 0, len(x) - len(mixed)))))
        convolved: Tensor = self.norm(self.block(x, context) + needed(local, context))
        return convolved


def _make_block(config: DebertaConfig) -> PostNormBlock:
    return PostNormBlock(
        _make_attention(config),
        _make_norm(config),
        FeedForward(config.width, config.feed_forward, config.activation, config.dropout),
        _make_norm(config),
        config.dropout,
    )


def _make_attention(config: DebertaConfig) -> SelfAttention | DisentangledAttention:
    """Without position vectors it is BERT's, but the score is still divided as if the products were there."""
    shape = (config.width, config.heads, config.attention_dropout)
    if config.relative_positions:
        return DisentangledAttention(*shape, config.dropout, config.products, config.share_projections)
    scale = (config.width // config.heads * (1 + len(config.products))) ** -0.5
    return SelfAttention(*shape, scale=scale)


def _make_norm(config: DebertaConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, eps=config.norm_epsilon)
