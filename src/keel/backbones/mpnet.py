"""MPNet (Song et al. 2020): BERT without segments, with a learned bias for the distance of two tokens on their score.

In: a flat batch. Out: one vector per token. The layers are BERT's; all of them add the same bias, one number for each
head and bucket of distances, as T5. Position embeddings remain, with indices that start after the padding token's.

Notable choices
- MPNet's own objective, masked and permuted language modelling, is not here; it is pretrained with masked language
  modelling.
- The published padding token has id 1, and `transformers` counts positions without any token of that id, whatever the
  tokenizer. So does Keel: with one that calls another token 1 (WordPiece's [UNK]), that token has no position of its
  own, and a folder gives the same vectors there.
- The published model has no pooler for classification: the `classifier.dense` of its head is the pooler here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from keel.backbones._post_norm import BidirectionalConfig, init_positions, make_block, make_embeddings
from keel.interfaces import Backbone
from keel.layers.attention.context import AttentionContext
from keel.layers.attention.relative import RelativeBias, SharedBias
from keel.layers.block import attention_of, run_blocks
from keel.layers.init_weights import init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler, row_of_token
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding

PADDING = 1  # the id of the published padding token
FIRST_POSITION = PADDING + 1


class MpnetConfig(BidirectionalConfig):
    kind: Literal["mpnet"] = "mpnet"
    segments: int = Field(0, ge=0, le=0, description="always 0: there are no segment embeddings")
    norm_epsilon: float = Field(1e-5, gt=0)
    pooler: bool = False


class Mpnet(Backbone):
    Config = MpnetConfig

    def __init__(self, config: MpnetConfig) -> None:
        super().__init__(config)
        self.embeddings = make_embeddings(config, FIRST_POSITION)
        self.relative = RelativeBias(config.heads)
        self.blocks = nn.ModuleList(make_block(config) for _ in range(config.layers))
        self.pooler = Pooler(config.width) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        x = pad_to_multiple(self.embeddings(replace(batch, positions=counted_positions(batch))))
        context = AttentionContext(batch.lengths, bias=SharedBias(self.relative))
        return run_blocks(self.blocks, x, batch, all_layers, context)

    def token_embeddings(self) -> Tensor:
        return self.embeddings.tokens.weight

    def token_head(self) -> TokenHead:
        """Always with gelu, independent of the layers' activation."""
        return TokenHead(self.width, self.token_embeddings(), "gelu", self.config.norm_epsilon)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        init_positions(self.embeddings, attention_of(self.blocks[0]), self.config)


def counted_positions(batch: Batch) -> Tensor:
    """(T,): the number of tokens before each token of its row, not counting those with the id of the padding token;
    such a token itself is at -1."""
    counts = (batch.ids != PADDING).long()
    before = counts.cumsum(0) - counts
    return (before - before[batch.starts][row_of_token(batch)]) * counts + counts - 1
