"""BERT (Devlin et al. 2018): token + segment + learned position embeddings, then post-norm Transformer blocks.

In: a flat batch. Out: one vector per token. The pooler (dense + tanh on [CLS]) is part of the encoder, as in the
published checkpoints, because fine-tuning starts from it.

Notable choice: positions and the first layer's attention are not initialised with noise (`_post_norm.py`).

Shapes: T tokens, W width, V vocabulary.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from keel.backbones._post_norm import PostNormConfig, init_positions, make_block, make_embeddings
from keel.interfaces import Backbone
from keel.layers.block import attention_of, run_blocks
from keel.layers.init_weights import init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class BertConfig(PostNormConfig):
    kind: Literal["bert"] = "bert"


class Bert(Backbone):
    Config = BertConfig

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.embeddings = make_embeddings(config)
        self.blocks = nn.ModuleList(make_block(config) for _ in range(config.layers))
        self.pooler = Pooler(config.width) if config.pooler else None

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
