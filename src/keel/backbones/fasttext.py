"""Static word vectors with subword n-grams (Bojanowski et al. 2017): out-of-vocabulary words have vectors too.

In: a flat batch. Out: one vector per word, independent of its context. As word2vec, but a word's vector is the mean of
its own embedding and those of its n-grams: "<where>" is also `<wh`, `whe`, `her`, `ere`, `re>`. An out-of-vocabulary
word is the mean of its n-grams alone.

Notable choice: words and n-grams share one embedding matrix, and the list of rows that make up each word is stored with
the weights. Training is then skip-gram or CBOW over lists of rows (`objectives/_word_vector_loops.py`), and the model
folder needs nothing else.

Shapes: T tokens, V words, B buckets of n-grams, U distinct words, W width.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.interfaces import Backbone, Tokenizer
from keel.layers.pooling import mean_of_rows
from keel.layers.token_head import TiedHead
from keel.tokenizers.spelling import grams, unspell
from keel.values import Batch, Encoding

PARTS = 24  # rows of a word, at most: its own, and its first n-grams


class FastTextConfig(BackboneConfig):
    kind: Literal["fasttext"] = "fasttext"
    width: int = Field(100, ge=1, le=1 << 20)
    min_n: int = Field(3, ge=1, le=1 << 20, description="characters of an n-gram, at least")
    max_n: int = Field(6, ge=1, le=1 << 20, description="characters of an n-gram, at most")
    buckets: int = Field(
        200_000, ge=1, le=1 << 31, description="embeddings shared by all n-grams, which are hashed to them"
    )
    max_characters: int = Field(64, ge=3, le=1 << 20, description="bytes read of an out-of-vocabulary word")
    layers: Literal[0] = 0
    pooler: Literal[False] = False

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> Self:
        if self.min_n > self.max_n:
            raise ValueError(f"min_n {self.min_n} is above max_n {self.max_n}")
        return self

    @property
    def context(self) -> Literal["none"]:
        return "none"

    @property
    def characters_read(self) -> int:
        return self.max_characters


class FastText(Backbone):
    Config = FastTextConfig

    def __init__(self, config: FastTextConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.rows = nn.Embedding(config.vocabulary + config.buckets, config.width)
        # (V, PARTS): the rows of each word, its own first; padded with -1
        self.parts: Tensor
        self.register_buffer("parts", torch.full((config.vocabulary, PARTS), -1, dtype=torch.int32))
        self.parts[:, 0] = torch.arange(config.vocabulary)
        self.blocks = nn.ModuleList()

    def attach_tokenizer(self, tokenizer: Tokenizer) -> None:
        special = {tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask}
        for id in range(tokenizer.size):
            ngrams = [] if id in special else self._ngrams(tokenizer.token(id))
            parts = torch.tensor([id, *ngrams][:PARTS], dtype=torch.int32)
            self.parts[id] = -1
            self.parts[id, : len(parts)] = parts

    def _ngrams(self, word: str) -> list[int]:
        config = self.config
        return [config.vocabulary + n for n in grams(word, config.min_n, config.max_n, config.buckets)]

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        vectors = F.embedding(batch.ids, self.token_embeddings()) if batch.spellings is None else self._read(batch)
        return Encoding(vectors, (vectors,) if all_layers else ())

    def _read(self, batch: Batch) -> Tensor:
        """(T, W): each distinct word is computed once."""
        assert batch.spellings is not None
        unknown = batch.spellings.unknown
        parts = self.parts[batch.spellings.ids[: len(batch.spellings.ids) - len(unknown)]]
        if len(unknown):
            new = np.full((len(unknown), PARTS), -1, np.int32)
            for row, codes in zip(new, unknown.cpu().numpy(), strict=True):
                ngrams = self._ngrams(unspell(codes))[:PARTS]
                row[: len(ngrams)] = ngrams
            parts = torch.cat([parts, torch.from_numpy(new).to(parts.device)])
        return self._compose(parts)[batch.spellings.index]

    def _compose(self, parts: Tensor) -> Tensor:
        """(U, W): the mean of each word's rows; zero for a word without rows."""
        there = (parts >= 0).to(self.rows.weight.dtype)
        sums = F.embedding_bag(parts.clamp(min=0).long(), self.rows.weight, per_sample_weights=there, mode="sum")
        return sums / there.sum(1, keepdim=True).clamp(min=1)

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        return mean_of_rows(vectors, batch)

    def vector_of(self, word: str) -> Tensor:
        """(W,): the vector of an out-of-vocabulary word."""
        ngrams = self._ngrams(word)[:PARTS]
        return self._compose(torch.tensor([ngrams + [-1] * (PARTS - len(ngrams))], dtype=torch.int32))[0]

    def token_embeddings(self) -> Tensor:
        return self._compose(self.parts)

    def token_head(self) -> TiedHead:
        return TiedHead()

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        self.rows.weight.uniform_(-1 / self.width, 1 / self.width, generator=generator)
