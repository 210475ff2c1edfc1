"""Static word vectors (Mikolov et al. 2013): each word has one vector, independent of its context.

In: a flat batch. Out: one vector per word. As a backbone it is a bare embedding layer, so every task runs on it and the
value of context can be measured. It is trained by `objectives/skip_gram.py` or `objectives/cbow.py`.

Notable choices
- A row is represented by the mean of its words: its first token has no information about the others.
- Vectors are initialised uniformly within 1 / width of zero, as in gensim: twice the published range. With one seed
  that was better for skip-gram and made no difference for CBOW (docs/notebook.md).

Shapes: T tokens, R rows, W width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone
from keel.layers.pooling import mean_of_rows
from keel.layers.token_head import TiedHead
from keel.values import Batch, Encoding


class Word2VecConfig(BackboneConfig):
    kind: Literal["word2vec"] = "word2vec"
    width: int = Field(100, ge=1, le=1 << 20)
    layers: Literal[0] = 0
    pooler: Literal[False] = False

    @property
    def context(self) -> Literal["none"]:
        return "none"


class Word2Vec(Backbone):
    Config = Word2VecConfig

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList()

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        vectors = self.tokens(batch.ids)
        return Encoding(vectors, (vectors,) if all_layers else ())

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the mean of each row's vectors."""
        return mean_of_rows(vectors, batch)

    def token_embeddings(self) -> Tensor:
        return self.tokens.weight

    def token_head(self) -> TiedHead:
        return TiedHead()

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        self.tokens.weight.uniform_(-1 / self.width, 1 / self.width, generator=generator)
