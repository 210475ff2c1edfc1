"""DistilBERT (Sanh et al. 2019): BERT with half of its layers, without segments, trained to imitate BERT.

In: a flat batch. Out: one vector per token. The layers are BERT's.

Notable choices
- The published model has no pooler; the `pre_classifier` of its classification head, a dense layer and relu, is the
  pooler here.
- Dropout is where BERT has it. `transformers` leaves it out after the attention of this model, so that training with
  dropout differs a little from theirs; the model itself is the same.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from keel.backbones._post_norm import BidirectionalConfig, init_positions, make_block, make_embeddings
from keel.interfaces import Backbone
from keel.layers.block import attention_of, run_blocks
from keel.layers.init_weights import init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class DistilBertConfig(BidirectionalConfig):
    kind: Literal["distilbert"] = "distilbert"
    layers: int = Field(6, ge=1, le=1000)
    segments: int = Field(0, ge=0, le=0, description="always 0: there are no segment embeddings")
    pooler: bool = False


class DistilBert(Backbone):
    Config = DistilBertConfig

    def __init__(self, config: DistilBertConfig) -> None:
        super().__init__(config)
        self.embeddings = make_embeddings(config)
        self.blocks = nn.ModuleList(make_block(config) for _ in range(config.layers))
        self.pooler = Pooler(config.width, torch.relu) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        return run_blocks(self.blocks, pad_to_multiple(self.embeddings(batch)), batch, all_layers)

    def token_embeddings(self) -> Tensor:
        return self.embeddings.tokens.weight

    def token_head(self) -> TokenHead:
        config = self.config
        return TokenHead(config.width, self.token_embeddings(), config.activation, config.norm_epsilon)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        init_positions(self.embeddings, attention_of(self.blocks[0]), self.config)
