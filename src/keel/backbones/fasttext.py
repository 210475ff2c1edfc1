"""Static word vectors from parts of words (Bojanowski et al. 2017): unseen words have vectors too.

As word2vec, but a word's vector is the mean of its own row and of the rows of its n-grams: "<where>" is also `<wh`,
`whe`, `her`, `ere`, `re>`. A word without an entry is the mean of its n-grams alone.

Notable choice: rows of words and of n-grams stand in one table, and which rows make up a word is part of the model. So
learning it is skip-gram or CBOW over lists of rows (`layers/word_windows.py`), and the folder is whole by itself.

Shapes: T tokens, V words, B buckets of n-grams, U different words, W width.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.checkpoint import own_family
from keel.interfaces import Backbone, Batch, Encoding, Tokenizer
from keel.layers.pooling import mean_of_rows
from keel.tokenizers.spelling import ROLES, grams, unspell

ANY_LENGTH = 1 << 20
PARTS = 24  # of a word at the most: its own row, and its first n-grams


class FastTextConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["fasttext"] = "fasttext"
    vocabulary: int | None = Field(None, ge=6, description="words; null: as many as the tokenizer has")
    width: int = Field(100, ge=1)
    least: int = Field(3, ge=1, description="characters of an n-gram, at least")
    most: int = Field(6, ge=1, description="characters of an n-gram, at most")
    buckets: int = Field(200_000, ge=1, description="rows that n-grams share")
    spelling: int = Field(64, ge=3, description="bytes of a word without an entry that are read")
    start_deviation: float = Field(0.02, gt=0, description="of what a task puts on top")
    layers: ClassVar[int] = 0
    pooler: ClassVar[bool] = False

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"n-grams of {self.least} characters at least and {self.most} at most are none")
        return self


class FastText(Backbone):
    Config = FastTextConfig
    averages = True
    reads_spellings = True
    head = "plain"
    longest = ANY_LENGTH

    def __init__(self, config: FastTextConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = config.width
        self.rows = nn.Embedding(config.vocabulary + config.buckets, config.width)
        # (V, PARTS): the rows of each word, its own first; filled up with -1
        self.parts: Tensor
        self.register_buffer("parts", torch.full((config.vocabulary, PARTS), -1, dtype=torch.int32))
        self.parts[:, 0] = torch.arange(config.vocabulary)
        self.blocks = nn.ModuleList()
        self.pooler = None

    def meet(self, tokenizer: Tokenizer) -> None:
        special = {getattr(tokenizer, role) for role in ROLES}
        for id in range(tokenizer.size):
            found = [] if id in special else self._grams(tokenizer.token(id))
            mine = torch.tensor([id, *found][:PARTS], dtype=torch.int32)
            self.parts[id] = -1
            self.parts[id, : len(mine)] = mine

    def _grams(self, word: str) -> list[int]:
        config = self.config
        return [config.vocabulary + n for n in grams(word, config.least, config.most, config.buckets)]

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        vectors = F.embedding(batch.ids, self.token_table()) if batch.spelt is None else self._spelt(batch)
        return Encoding(vectors, (vectors,) if every_layer else ())

    def _spelt(self, batch: Batch) -> Tensor:
        """(T, W): each different word is put together once."""
        assert batch.spelt is not None
        unknown = batch.spelt.unknown
        parts = self.parts[batch.spelt.ids[: len(batch.spelt.ids) - len(unknown)]]
        if len(unknown):
            found = np.full((len(unknown), PARTS), -1, np.int32)
            for row, codes in zip(found, unknown.cpu().numpy(), strict=True):
                mine = self._grams(unspell(codes))[:PARTS]
                row[: len(mine)] = mine
            parts = torch.cat([parts, torch.from_numpy(found).to(parts.device)])
        return self._put_together(parts)[batch.spelt.which]

    def _put_together(self, parts: Tensor) -> Tensor:
        """(U, W): the mean of each word's rows; a word without any is zero."""
        there = (parts >= 0).to(self.rows.weight.dtype)
        sums = F.embedding_bag(parts.clamp(min=0).long(), self.rows.weight, per_sample_weights=there, mode="sum")
        return sums / there.sum(1, keepdim=True).clamp(min=1)

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        return mean_of_rows(vectors, batch)

    def vector_of(self, word: str) -> Tensor:
        """(W,): of a word without an entry."""
        mine = self._grams(word)[:PARTS]
        return self._put_together(torch.tensor([mine + [-1] * (PARTS - len(mine))], dtype=torch.int32))[0]

    def token_table(self) -> Tensor:
        return self._put_together(self.parts)

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        self.rows.weight.uniform_(-1 / self.width, 1 / self.width, generator=generator)


FastText.published = own_family("fasttext", FastText)
