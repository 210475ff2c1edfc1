"""A recurrent encoder: what attention replaced (Cho et al. 2014; Bahdanau et al. 2015).

In: a flat batch. Out: for each token the state from the left and the state from the right, side by side. Each layer
reads both sides of the layer below. Embeddings start small and are multiplied by the root of W, as the Transformer's.

Shapes: T tokens, R rows, W width: half for each side.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.checkpoint import own_family
from keel.interfaces import Backbone, Batch, Encoding
from keel.layers.dropout import Dropout
from keel.layers.recurrent import BothSides, whole_rows
from keel.layers.start import start_as_glorot, start_weights

ANY_LENGTH = 1 << 20


class RnnConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["rnn"] = "rnn"
    vocabulary: int | None = Field(None, ge=6, description="tokens; null: as many as the tokenizer has")
    layers: int = Field(1, ge=1)
    width: int = Field(512, ge=2)
    cell: Literal["gru", "lstm"] = "gru"
    activation: Literal["relu", "gelu"] = Field("gelu", description="of a head that guesses tokens")
    dropout: float = Field(0.1, ge=0, lt=1)
    norm_epsilon: float = Field(1e-5, gt=0)
    start_deviation: float = Field(0.05, gt=0)
    pooler: bool = False

    @model_validator(mode="after")
    def _width_has_two_halves(self) -> Self:
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd; each side has half of it")
        return self


class Rnn(Backbone):
    Config = RnnConfig
    tokens: nn.Embedding
    longest = ANY_LENGTH

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = config.width
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            BothSides(config.width, config.width // 2, config.cell) for _ in range(config.layers)
        )
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        layers = [self.dropout(self.tokens(batch.ids) * self.width**0.5)]
        for block in self.blocks:
            layers.append(self.dropout(block(layers[-1], batch)))
        return Encoding(layers[-1], tuple(layers) if every_layer else ())

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        return whole_rows(vectors, batch, self.width // 2)

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        whole = self.row_vectors(vectors, batch)
        return whole if self.pooler is None else torch.tanh(self.pooler(whole))

    def token_table(self) -> Tensor:
        return self.tokens.weight

    def start(self, generator: torch.Generator) -> None:
        start_weights(self, self.config.start_deviation, generator)
        start_as_glorot(self, generator)


Rnn.published = own_family("rnn", Rnn)
