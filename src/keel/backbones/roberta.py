"""RoBERTa (Liu et al. 2019): BERT without segments, with position indices that start after the padding token's id.

In: a flat batch. Out: one vector per token. The layers are BERT's; RoBERTa's other changes are in its recipe: no
next-sentence prediction, rows packed with full sentences, dynamic masking, larger batches, byte-level BPE.

Notable choices
- Published checkpoints add the same segment embedding to every token, and never use their first `padding + 1` position
  embeddings. Both are kept, so that model folders can be exchanged with `transformers`.
- The published model has no pooler: the `classifier.dense` of its classification head is the pooler here.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from keel.backbones._post_norm import OffsetConfig, init_positions, make_block, make_embeddings
from keel.interfaces import Backbone
from keel.layers.block import attention_of, run_blocks
from keel.layers.init_weights import init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class RobertaConfig(OffsetConfig):
    kind: Literal["roberta"] = "roberta"


class Roberta(Backbone):
    Config = RobertaConfig

    def __init__(self, config: RobertaConfig) -> None:
        super().__init__(config)
        self.embeddings = make_embeddings(config, config.first_position, fixed_segment=True)
        self.blocks = nn.ModuleList(make_block(config) for _ in range(config.layers))
        self.pooler = Pooler(config.width) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        return run_blocks(self.blocks, pad_to_multiple(self.embeddings(batch)), batch, all_layers)

    def token_embeddings(self) -> Tensor:
        return self.embeddings.tokens.weight

    def token_head(self) -> TokenHead:
        """Always with gelu, independent of the layers' activation."""
        return TokenHead(self.width, self.token_embeddings(), "gelu", self.config.norm_epsilon)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        init_positions(self.embeddings, attention_of(self.blocks[0]), self.config)
