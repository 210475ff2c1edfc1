"""A bidirectional recurrent encoder (Cho et al. 2014; Bahdanau et al. 2015), the predecessor of the Transformer.

In: a flat batch. Out: for each token the forward and the backward state, concatenated. Each layer reads both directions
of the layer below. Embeddings start small and are multiplied by sqrt(W), as in the Transformer.

Shapes: T tokens, R rows, W width, half of it for each direction.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone
from keel.layers.dropout import Dropout
from keel.layers.embeddings import embed_tokens
from keel.layers.init_weights import init_glorot, init_normal
from keel.layers.pooling import Pooler
from keel.layers.recurrent.rows import BothSides, whole_rows
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class RnnConfig(BackboneConfig):
    kind: Literal["rnn"] = "rnn"
    layers: int = Field(1, ge=1, le=1000)
    width: int = Field(512, ge=2, le=1 << 20)
    cell: Literal["gru", "lstm"] = "gru"
    dropout: float = Field(0.1, ge=0, lt=1)
    init_std: float = Field(0.05, gt=0)

    @model_validator(mode="after")
    def _width_has_two_halves(self) -> Self:
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd; each direction gets half of it")
        return self


class Rnn(Backbone):
    Config = RnnConfig

    def __init__(self, config: RnnConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            BothSides(config.width, config.width // 2, config.cell) for _ in range(config.layers)
        )
        self.pooler = Pooler(config.width) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        layers = [self.dropout(embed_tokens(self.tokens, batch) * self.width**0.5)]
        for block in self.blocks:
            layers.append(self.dropout(block(layers[-1], batch)))
        return Encoding(layers[-1], tuple(layers) if all_layers else ())

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        return whole_rows(vectors, batch, self.width // 2)

    def token_embeddings(self) -> Tensor:
        return self.tokens.weight

    def token_head(self) -> TokenHead:
        return TokenHead(self.width, self.token_embeddings())

    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        init_glorot(self, generator)
