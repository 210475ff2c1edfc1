"""ALBERT (Lan et al. 2019): BERT with factorised embeddings and parameters shared across layers.

In: a flat batch. Out: one vector per token. The two reductions of parameters are the model; sentence-order prediction
instead of next-sentence prediction, and n-gram masking, are in its recipe.

Notable choices
- `share_parameters`: what the layers share: everything, attention, feed-forward, or nothing. Layers that share a part
  hold the same module. With everything shared there is a single block that runs repeatedly: its layers cannot be
  frozen, reinitialised or given a learning rate one by one.
- The published format has groups of layers, not groups of attention or feed-forward parts. A model that shares only one
  of the two is written as one group per layer, with the shared part repeated; `transformers` computes the same from it.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from keel.backbones._post_norm import BidirectionalConfig, init_positions, make_block, make_embeddings
from keel.interfaces import Backbone
from keel.layers.block import PostNormBlock, attention_of, run_blocks
from keel.layers.init_weights import init_identity, init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class AlbertConfig(BidirectionalConfig):
    kind: Literal["albert"] = "albert"
    embedding_width: int = Field(128, ge=1, le=1 << 20)
    share_parameters: Literal["all", "attention", "feed-forward", "none"] = "all"
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu_new"
    dropout: float = Field(0.0, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)

    @property
    def stored_layers(self) -> int:
        return 1 if self.share_parameters == "all" else self.layers

    @property
    def embedding(self) -> int:
        return self.embedding_width


class Albert(Backbone):
    Config = AlbertConfig

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        self.embeddings = make_embeddings(config)
        self.blocks = nn.ModuleList(_make_blocks(config))
        self.pooler = Pooler(config.width) if config.pooler else None
        self.embedding_projection = nn.Linear(config.embedding, config.width)

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        x = pad_to_multiple(self.embedding_projection(self.embeddings(batch)))
        blocks = list(self.blocks) * (self.config.layers // len(self.blocks))
        return run_blocks(blocks, x, batch, all_layers)

    def token_embeddings(self) -> Tensor:
        return self.embeddings.tokens.weight

    def token_head(self) -> TokenHead:
        config = self.config
        return TokenHead(config.width, self.token_embeddings(), config.activation, config.norm_epsilon)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        alone = self.config.share_parameters in ("feed-forward", "none") and self.config.layers > 1
        init_positions(self.embeddings, attention_of(self.blocks[0]) if alone else None, self.config)
        init_identity(self.embedding_projection)


def _make_blocks(config: AlbertConfig) -> list[PostNormBlock]:
    """One block for all layers, or one per layer with some modules shared."""
    if config.share_parameters == "all":
        return [make_block(config)]
    blocks = [make_block(config) for _ in range(config.layers)]
    for block in blocks[1:]:
        if config.share_parameters == "attention":
            block.attention, block.attention_norm = blocks[0].attention, blocks[0].attention_norm
        if config.share_parameters == "feed-forward":
            block.feed_forward, block.feed_forward_norm = blocks[0].feed_forward, blocks[0].feed_forward_norm
    return blocks
