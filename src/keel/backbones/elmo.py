"""ELMo's two-way language model (Peters et al. 2018): words from their characters, then LSTMs from each side.

In: a flat batch of words. Out: for each word the states of the upper layer, from the left and from the right, side by
side; and every layer, the characters' own vector twice as the lowest. It is learnt by `objectives/both_ways.py`; a task
reads a learned mix of its layers (`training/encoder.py`).

    x = WordCharacters(spelling)                       (`layers/word_characters.py`)
    forward, in each layer:  f = LSTM(f of the layer below)  [+ the layer below, from the second layer on]
    backward likewise, from the right; the two never see each other

Notable choices
- A word that the vocabulary does not have is read by its spelling like any other: its id is beyond the vocabulary, and
  the batch says how it is spelt (`Batch.spelt`).
- The vocabulary's spellings are part of the model, so the folder is whole without a tokenizer.
- Rows begin fresh. The published program carried states from one batch over to the next, which made a row's vectors
  depend on what was read before.

Shapes: T tokens, R rows, U different words, L codes of a spelling, P projection, W = 2 P.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NoReturn, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from torch import Tensor, nn

from keel.checkpoint import own_family
from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Encoding, Tokenizer
from keel.layers.dropout import Dropout
from keel.layers.recurrent import Reading, read_sides, whole_rows
from keel.layers.start import start_weights
from keel.layers.word_characters import WordCharacters
from keel.tokenizers.spelling import spell_vocabulary

ANY_LENGTH = 1 << 20
PAPER = [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)]


class ElmoConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["elmo"] = "elmo"
    vocabulary: int | None = Field(None, ge=6, description="words; null: as many as the tokenizer has")
    spelling: int = Field(50, ge=3, description="bytes of a word that are read, with the two marks around it")
    character_width: int = Field(16, ge=1)
    filters: list[tuple[int, int]] = Field(PAPER, min_length=1, description="widths, and how many convolutions of each")
    highways: int = Field(2, ge=0)
    layers: int = Field(2, ge=1)
    cells: int = Field(4096, ge=2, description="of each LSTM")
    width: int = Field(512, ge=1, description="of each LSTM's projected state; a word's vector has twice as much")
    dropout: float = Field(0.1, ge=0, lt=1)
    start_deviation: float = Field(0.02, gt=0)
    pooler: ClassVar[bool] = False

    @field_validator("filters")
    @classmethod
    def _filters_exist(cls, filters: list[tuple[int, int]]) -> list[tuple[int, int]]:
        if min(min(pair) for pair in filters) < 1:
            raise ValueError("filters are [width, how many], both 1 at least")
        return filters

    @model_validator(mode="after")
    def _cells_are_projected(self) -> Self:
        if self.width > self.cells:
            raise ValueError(f"width {self.width} is more than the {self.cells} cells that are projected to it")
        return self


class Elmo(Backbone):
    Config = ElmoConfig
    reads_spellings = True
    has_table = False
    longest = ANY_LENGTH

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = 2 * config.width
        self.characters = self.make_characters()
        self.spellings: Tensor
        self.register_buffer("spellings", torch.zeros(config.vocabulary, config.spelling, dtype=torch.int16))
        self.blocks = nn.ModuleList(Layer(config, residual=number > 0) for number in range(config.layers))
        self.dropout = Dropout(config.dropout)
        self.pooler = None

    def make_characters(self) -> WordCharacters:
        """A network that makes words of characters, as this model has it."""
        config = self.config
        return WordCharacters(config.character_width, config.filters, config.highways, config.width)

    def meet(self, tokenizer: Tokenizer) -> None:
        self.spellings.copy_(torch.from_numpy(spell_vocabulary(tokenizer, self.config.spelling)))

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        words = self.dropout(self._words(batch))
        sides, layers = (words, words), [torch.cat([words, words], 1)]
        readings = [Reading.of(batch.lengths, batch.ids.device, backwards) for backwards in (False, True)]
        for block in self.blocks:
            sides = block(*sides, readings)
            layers.append(torch.cat(sides, 1))
        return Encoding(layers[-1], tuple(layers) if every_layer else ())

    def _words(self, batch: Batch) -> Tensor:
        """(T, P): each different word is computed once."""
        if batch.spelt is None:
            found: Tensor = self.characters(self.spellings[batch.ids])
            return found
        known = batch.spelt.ids[: len(batch.spelt.ids) - len(batch.spelt.unknown)]
        codes = torch.cat([self.spellings[known], batch.spelt.unknown.to(self.spellings.dtype)])
        return self.characters(codes)[batch.spelt.which]

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        return whole_rows(vectors, batch, self.config.width)

    def token_table(self) -> NoReturn:
        raise UserError("an ELMo has no table of words; it is learnt by both_ways")

    def start(self, generator: torch.Generator) -> None:
        start_weights(self, self.config.start_deviation, generator)
        self.characters.begin(generator)


class Layer(nn.Module):
    """One LSTM from each side. `residual`: what comes in is added to what goes out."""

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


Elmo.published = own_family("elmo", Elmo)
