"""Static word vectors (Mikolov et al. 2013): each word has one vector, whatever stands around it.

As a backbone it is the least there is, an embedding and nothing above it, so that every task runs on it and what
context is worth can be measured. It is learnt by `objectives/skip_gram.py` or `objectives/cbow.py`.

Notable choices
- A row is pooled as the mean of its words: its first token knows nothing of the others.
- Vectors start within 1 / width of zero, twice as far as published, as gensim's do. With one seed that was better for
  skip-gram and neither for CBOW (docs/notebook.md).

Shapes: T tokens, R rows, W width.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.checkpoint import Name, Published
from keel.interfaces import Backbone, Batch, Encoding
from keel.layers.pooling import mean_of_rows

ANY_LENGTH = 1 << 20


class Word2VecConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["word2vec"] = "word2vec"
    vocabulary: int | None = Field(None, ge=6, description="tokens; null: as many as the tokenizer has")
    width: int = Field(100, ge=1)
    start_deviation: float = Field(0.02, gt=0, description="of what a task puts on top")
    layers: ClassVar[int] = 0
    pooler: ClassVar[bool] = False


class Word2Vec(Backbone):
    Config = Word2VecConfig
    tokens: nn.Embedding
    averages = True
    head = "plain"
    longest = ANY_LENGTH

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = config.width
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList()
        self.pooler = None

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        vectors = self.tokens(batch.ids)
        return Encoding(vectors, (vectors,) if every_layer else ())

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the mean of each row's vectors."""
        return mean_of_rows(vectors, batch)

    def token_table(self) -> Tensor:
        return self.tokens.weight

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        self.tokens.weight.uniform_(-1 / self.width, 1 / self.width, generator=generator)


def to_published(config: Word2VecConfig, pad: int) -> dict[str, Any]:
    shape = {"vocab_size": config.vocabulary, "hidden_size": config.width, "pad_token_id": pad}
    return {"model_type": "keel-word2vec", **shape}  # a family that `transformers` does not know


def from_published(published: dict[str, Any], tensor_names: set[str]) -> Word2VecConfig:
    return Word2VecConfig(vocabulary=published["vocab_size"], width=published["hidden_size"])


def published_names(config: Word2VecConfig, kind: str | None) -> list[Name]:
    return [Name("backbone.tokens.weight", "vectors")]


Word2Vec.published = Published(
    "word2vec", to_published, from_published, published_names, dict, [("Word2Vec", set())], {}
)
