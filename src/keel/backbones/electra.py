"""ELECTRA (Clark et al. 2020): BERT with embeddings that may be narrower than its layers, and no pooler in pretraining.

In: a flat batch. Out: one vector per token. What makes it ELECTRA is its objective (`objectives/replaced_token.py`):
detecting the tokens that a small generator replaced. Generator and discriminator share their embeddings.

Notable choice: the projection from narrower embeddings starts near the identity, so that the position waves stay in the
columns where the first layer reads them (`_post_norm.py`).
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from keel.backbones._post_norm import BidirectionalConfig, init_positions, make_block, make_embeddings
from keel.interfaces import Backbone
from keel.layers.block import attention_of, run_blocks
from keel.layers.init_weights import init_identity, init_normal
from keel.layers.padding import pad_to_multiple
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class ElectraConfig(BidirectionalConfig):
    kind: Literal["electra"] = "electra"
    embedding_width: int | None = Field(None, ge=1, le=1 << 20, description="null: the model's width")
    pooler: bool = False

    @property
    def embedding(self) -> int:
        return self.embedding_width or self.width


class Electra(Backbone):
    Config = ElectraConfig

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__(config)
        self.embeddings = make_embeddings(config)
        self.blocks = nn.ModuleList(make_block(config) for _ in range(config.layers))
        # As in the published classifier: gelu instead of tanh.
        self.pooler = Pooler(config.width, F.gelu) if config.pooler else None
        narrower = config.embedding != config.width
        self.embedding_projection = nn.Linear(config.embedding, config.width) if narrower else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        x = self.embeddings(batch)
        x = x if self.embedding_projection is None else self.embedding_projection(x)
        return run_blocks(self.blocks, pad_to_multiple(x), batch, all_layers)

    def token_embeddings(self) -> Tensor:
        return self.embeddings.tokens.weight

    def token_head(self) -> TokenHead:
        return self.head_for(self.width)

    def head_for(self, width: int) -> TokenHead:
        """The head of a generator of this width: always with gelu, independent of the layers' activation."""
        return TokenHead(width, self.token_embeddings(), "gelu", self.config.norm_epsilon)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        init_positions(self.embeddings, attention_of(self.blocks[0]), self.config)
        if self.embedding_projection is not None:
            init_identity(self.embedding_projection)
