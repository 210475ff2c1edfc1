"""Masked language modelling (Devlin et al. 2018): guess 15 % of the tokens from the rest.

In: rows. Hides: of the chosen tokens 80 % become [MASK], 10 % a random token, 10 % stay. Why not always [MASK]: it
never occurs after pretraining; random tokens make the model check every word against its context, unchanged ones keep
a word's own information in its vector. Out: loss and accuracy at the chosen places only.

Notable choices
- What is chosen (`unit`): tokens, whole words, n-grams or spans; see `corpus/choose.py`.
- MLM as correction (Cui et al. 2020) shows a similar token where others show [MASK]: set `similar` instead of `mask`.
  Similar are the CANDIDATES tokens whose embeddings, those of the model in training, have the largest cosine with the
  hidden one's. Early in a run that is noise, and later what the model itself takes for alike.
- The choice derives from the row's key. Rows that never repeat are masked dynamically; a stream that repeats its rows
  (`data.copies`) repeats their masks: that is static masking.
- Logits exist at the chosen places only: the output layer is most of a small model's work.

Shapes: T tokens, P chosen places, S of them to be shown as a similar token, W width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from keel.corpus.choose import Unit, choose, special_ids
from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Objective, Rows, Score, Tokenizer
from keel.layers.token_head import TokenHead
from keel.randomness import uniform

ACTION, TOKEN = 2, 3  # the purposes a row's key is used for
CANDIDATES = 10


class MaskedLMConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    share: float = Field(0.15, gt=0, lt=1, description="share of tokens chosen")
    unit: Unit = Field("token", description="what is chosen at a time; words are those the corpus knows")
    longest: int = Field(3, ge=1, description="words of an ngram or span at the most")
    mask: float = Field(0.8, ge=0, le=1, description="share of the chosen that become [MASK]")
    similar: float = Field(0.0, ge=0, le=1, description="share of the chosen that become a similar token")
    random: float = Field(0.1, ge=0, le=1, description="share of the chosen that become a random token")
    weight: float = Field(1.0, gt=0)

    @model_validator(mode="after")
    def _shares_fit(self) -> MaskedLMConfig:
        if self.mask + self.similar + self.random > 1 + 1e-9:
            raise ValueError(f"mask {self.mask}, similar {self.similar} and random {self.random} together exceed 1")
        return self


class MaskedLM(Objective):
    name = "masked_lm"
    shows_mask = True
    looks_at = "places"
    Config = MaskedLMConfig

    def __init__(self, config: MaskedLMConfig, backbone: Backbone) -> None:
        super().__init__()
        if not backbone.has_table:
            raise UserError("masked_lm needs a backbone with a table of tokens, not one that reads spellings")
        if backbone.causal:
            raise UserError("masked_lm needs a backbone that looks both ways; left_to_right is for one that does not")
        self.config = config
        self.weight = config.weight
        self.head = TokenHead(backbone)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        config = self.config
        places = np.flatnonzero(choose(rows, config.share, tokenizer, config.unit, config.longest))
        keys, positions = rows.keys[rows.row_of_token[places]], rows.position_of_token[places]
        action, draw = uniform(keys, ACTION, positions), uniform(keys, TOKEN, positions)
        ordinary = np.setdiff1d(np.arange(tokenizer.size), special_ids(tokenizer))
        answers, ids = rows.ids[places], rows.ids.copy()
        similar = (action >= config.mask) & (action < config.mask + config.similar)
        shown = np.where(
            action < config.mask + config.similar + config.random, ordinary[_index(draw, ordinary)], answers
        )
        ids[places] = np.where(action < config.mask, tokenizer.mask, np.where(similar, answers, shown))
        targets = {"masked_lm.places": places, "masked_lm.answers": answers}
        if config.similar:
            targets |= {"masked_lm.similar": places[similar], "masked_lm.draws": draw[similar]}
            targets |= {"masked_lm.barred": special_ids(tokenizer)}
        return replace(rows, ids=ids), targets

    @torch.no_grad()
    def disguise(self, backbone: Backbone, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        if "masked_lm.similar" not in batch.targets:  # whoever hid the answers may have had other options
            return batch, {}
        places, draws = batch.targets["masked_lm.similar"], batch.targets["masked_lm.draws"]
        table = F.normalize(backbone.token_table(), dim=1)
        alike = table[batch.ids[places]] @ table.t()  # (S, V)
        alike.index_fill_(1, batch.targets["masked_lm.barred"], -2.0)
        alike.scatter_(1, batch.ids[places][:, None], -2.0)
        best = alike.topk(min(CANDIDATES, alike.shape[1] - len(batch.targets["masked_lm.barred"]) - 1)).indices
        number = (draws * best.shape[1]).long().clamp(max=best.shape[1] - 1)
        shown = best.gather(1, number[:, None]).squeeze(1)
        return replace(batch, ids=batch.ids.index_copy(0, places, shown), spelt=None), {}

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        found: Tensor = self.head(self._vectors(backbone, batch), backbone.token_table())
        return found

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        answers = batch.targets["masked_lm.answers"]
        loss, correct = self.head.score(self._vectors(backbone, batch), backbone.token_table(), answers)
        return {self.name: Score(loss, correct, answers.shape[0])}

    def _vectors(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(P, W): the vectors at the asked places."""
        return backbone(batch).vectors[batch.targets["masked_lm.places"]]


def _index(draw: np.ndarray, among: np.ndarray) -> np.ndarray:
    return (draw * len(among)).astype(np.int64)
