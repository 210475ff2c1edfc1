"""RoBERTa (Liu et al. 2019): BERT without segments, its positions counted from after the padding token's id.

The layers are BERT's; what RoBERTa changed is in its recipe: no next-sentence prediction, rows full of sentences, masks
drawn anew each time, larger batches, byte-level pieces.

Notable choices
- Published checkpoints add the same segment row to every token, and never use their first `padding + 1` position rows.
  Both are kept, so that folders open in `transformers` and from there.
- The published classifier has no pooler of its own: its `classifier.dense` is the pooler here, under their name.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from keel.backbones._post_norm import PostNormConfig, init_positions, make_block, make_embeddings
from keel.interfaces import Backbone
from keel.layers.block import attention_of, run_blocks
from keel.layers.init_weights import init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class RobertaConfig(PostNormConfig):
    kind: Literal["roberta"] = "roberta"
    segments: int = Field(1, ge=1, description="rows in the table; only the first is ever used")
    padding: int | None = Field(None, ge=0, description="id of the padding token; null: the tokenizer's")
    norm_epsilon: float = Field(1e-5, gt=0)
    pooler: bool = False

    @property
    def first_position(self) -> int:
        assert self.padding is not None, "the padding token is known before the model is built"
        return self.padding + 1


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
        """With gelu, whatever the layers' activation."""
        return TokenHead(self.width, self.token_embeddings(), "gelu", self.config.norm_epsilon)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        init_positions(self.embeddings, attention_of(self.blocks[0]), self.config)
