"""ELMo's bidirectional language model (Peters et al. 2018): a character CNN, then a forward and a backward LSTM.

In: a flat batch of words. Out: for each word the top layer's forward and backward states, concatenated; on request
every layer, the lowest being the character vector twice. It is trained by `objectives/bidirectional_lm.py`; tasks use a
learned mix of its layers (`learner/frozen_encoder.py`).

    x = WordCharacters(spelling)                       (`layers/word_characters.py`)
    forward, in each layer:  f = LSTM(f of the layer below)  [+ the layer below, from the second layer on]
    backward: the same, right to left; the two directions never exchange information

Notable choices
- A word outside the vocabulary is computed from its spelling like any other: its id is beyond the vocabulary, and the
  batch holds its spelling (`Batch.spellings`).
- The vocabulary's spellings are stored with the weights, so the model folder works without a tokenizer.
- States start at zero in every row. The published program carried states from one batch to the next, which made a
  row's vectors depend on the rows before it.

Shapes: T tokens, R rows, U different words, L codes of a spelling, P projection, W = 2 P.
"""

from __future__ import annotations

from typing import Literal, NoReturn, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from keel.configs import BackboneConfig
from keel.errors import UserError
from keel.interfaces import Backbone, Tokenizer
from keel.layers.dropout import Dropout
from keel.layers.init_weights import init_normal
from keel.layers.recurrent.rows import Reading, read_sides, whole_rows
from keel.layers.word_characters import WordCharacters
from keel.tokenizers.spelling import spell_vocabulary
from keel.values import Batch, Encoding

PAPER = [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)]


class ElmoConfig(BackboneConfig):
    kind: Literal["elmo"] = "elmo"
    max_characters: int = Field(50, ge=3, le=1 << 20, description="bytes read of a word, begin and end marks included")
    character_width: int = Field(16, ge=1, le=1 << 20)
    filters: list[tuple[int, int]] = Field(PAPER, min_length=1, description="convolutions: [width, how many]")
    highway_layers: int = Field(2, ge=0, le=100)
    layers: int = Field(2, ge=1, le=1000)
    cells: int = Field(4096, ge=2, le=1 << 20, description="of each LSTM")
    width: int = Field(
        512, ge=1, le=1 << 20, description="of an LSTM's projected state; a word's vector is twice as wide"
    )
    dropout: float = Field(0.1, ge=0, lt=1)
    pooler: Literal[False] = False

    @field_validator("filters")
    @classmethod
    def _filters_exist(cls, filters: list[tuple[int, int]]) -> list[tuple[int, int]]:
        if min(min(pair) for pair in filters) < 1:
            raise ValueError("filters are [width, how many], both at least 1")
        return filters

    @model_validator(mode="after")
    def _cells_are_projected(self) -> Self:
        if self.width > self.cells:
            raise ValueError(f"width {self.width} exceeds the {self.cells} cells it is projected from")
        return self

    @property
    def characters_read(self) -> int:
        return self.max_characters


class Elmo(Backbone):
    Config = ElmoConfig

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.width = 2 * config.width
        self.characters = self.make_characters()
        self.spellings: Tensor
        self.register_buffer("spellings", torch.zeros(config.vocabulary, config.max_characters, dtype=torch.int16))
        self.blocks = nn.ModuleList(Layer(config, residual=number > 0) for number in range(config.layers))
        self.dropout = Dropout(config.dropout)

    def make_characters(self) -> WordCharacters:
        """A new character CNN of this model's shape."""
        config = self.config
        return WordCharacters(config.character_width, config.filters, config.highway_layers, config.width)

    def attach_tokenizer(self, tokenizer: Tokenizer) -> None:
        self.spellings.copy_(torch.from_numpy(spell_vocabulary(tokenizer, self.config.max_characters)))

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        words = self.dropout(self._words(batch))
        sides, layers = (words, words), [torch.cat([words, words], 1)]
        readings = [Reading.of(batch.lengths, batch.ids.device, backwards) for backwards in (False, True)]
        for block in self.blocks:
            sides = block(*sides, readings)
            layers.append(torch.cat(sides, 1))
        return Encoding(layers[-1], tuple(layers) if all_layers else ())

    def _words(self, batch: Batch) -> Tensor:
        """(T, P): each distinct word is computed once."""
        if batch.spellings is None:
            vectors: Tensor = self.characters(self.spellings[batch.ids])
            return vectors
        known = batch.spellings.ids[: len(batch.spellings.ids) - len(batch.spellings.unknown)]
        codes = torch.cat([self.spellings[known], batch.spellings.unknown.to(self.spellings.dtype)])
        return self.characters(codes)[batch.spellings.index]

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        return whole_rows(vectors, batch, self.config.width)

    def token_embeddings(self) -> NoReturn:
        raise UserError("an ELMo has no word embedding matrix; train it with bidirectional_lm")

    def token_head(self) -> NoReturn:
        self.token_embeddings()

    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)
        self.characters.init_weights(generator)


class Layer(nn.Module):
    """A forward and a backward LSTM. `residual`: the input is added to the output."""

    def __init__(self, config: ElmoConfig, residual: bool) -> None:
        super().__init__()
        projected = config.width if config.width < config.cells else 0  # 0: no projection
        self.forwards = nn.LSTM(config.width, config.cells, proj_size=projected)
        self.backwards = nn.LSTM(config.width, config.cells, proj_size=projected)
        self.residual = residual
        self.dropout = Dropout(config.dropout)

    def forward(self, left: Tensor, right: Tensor, readings: list[Reading]) -> tuple[Tensor, Tensor]:
        ahead, back = map(self.dropout, read_sides((self.forwards, self.backwards), (left, right), readings))
        return (left + ahead, right + back) if self.residual else (ahead, back)
