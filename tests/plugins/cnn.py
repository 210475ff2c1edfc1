"""A plug-in: a plain convolutional encoder (Kim 2014, as an encoder of tokens).

In: a flat batch. Out: one vector per token, which sees `kernel // 2` tokens on either side for each layer.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone
from keel.layers.dropout import Dropout
from keel.layers.init_weights import init_normal
from keel.layers.padded_rows import PaddedRows
from keel.layers.pooling import Pooler
from keel.layers.token_head import TokenHead
from keel.values import Batch, Encoding


class CnnConfig(BackboneConfig):
    kind: Literal["cnn"] = "cnn"
    layers: int = Field(3, ge=1)
    width: int = Field(64, ge=1)
    kernel: Literal[3, 5, 7] = 3
    dropout: float = Field(0.1, ge=0, lt=1)
    pooler: bool = True


class Cnn(Backbone):
    Config = CnnConfig

    def __init__(self, config: CnnConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(
            nn.Conv1d(config.width, config.width, config.kernel, padding=config.kernel // 2)
            for _ in range(config.layers)
        )
        self.dropout = Dropout(config.dropout)
        self.pooler = Pooler(config.width) if config.pooler else None

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        rows = PaddedRows.of(batch.lengths, batch.ids.device)
        layers = [self.tokens(batch.ids)]
        for block in self.blocks:
            mixed = block(rows.pad(layers[-1]).transpose(1, 2)).transpose(1, 2)
            layers.append(layers[-1] + self.dropout(torch.relu(rows.flatten(mixed))))
        return Encoding(layers[-1], tuple(layers) if all_layers else ())

    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)

    def token_embeddings(self) -> Tensor:
        return self.tokens.weight

    def token_head(self) -> TokenHead:
        return TokenHead(self.width, self.token_embeddings())
