"""Masked language modelling (Devlin et al. 2018): guess 15 % of the tokens from the rest.

In: rows. Hides: of the chosen tokens 80 % become [MASK], 10 % a random token, 10 % stay. Why not always [MASK]: it
never occurs after pretraining; random tokens make the model check every word against its context, unchanged ones keep
a word's own information in its vector. Out: loss and accuracy at the chosen places only.

Notable choices
- Each row has exactly round(share x ordinary tokens) chosen, at least one; special tokens are never chosen nor drawn.
- The choice derives from the row's key. Rows that never repeat are masked dynamically; a stream that repeats its rows
  (`data.copies`) repeats their masks: that is static masking.
- Logits exist at the chosen places only: the output layer is most of a small model's work.

Shapes: T tokens, P chosen places, W width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.interfaces import Backbone, Batch, Objective, Rows, Score, Tokenizer
from keel.layers.activations import ACTIVATIONS
from keel.layers.cross_entropy import tied_cross_entropy
from keel.randomness import uniform

CHOICE, ACTION, TOKEN = 1, 2, 3  # the purposes a row's key is used for


class MaskedLMConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    share: float = Field(0.15, gt=0, lt=1, description="share of tokens chosen")
    mask: float = Field(0.8, ge=0, le=1, description="share of the chosen that become [MASK]")
    random: float = Field(0.1, ge=0, le=1, description="share of the chosen that become a random token")
    weight: float = Field(1.0, gt=0)

    @model_validator(mode="after")
    def _shares_fit(self) -> MaskedLMConfig:
        if self.mask + self.random > 1 + 1e-9:
            raise ValueError(f"mask {self.mask} and random {self.random} together exceed 1")
        return self


class MaskedLM(Objective):
    name = "masked_lm"
    looks_at = "places"
    Config = MaskedLMConfig

    def __init__(self, config: MaskedLMConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.weight = config.weight
        self.dense = nn.Linear(backbone.width, backbone.width)
        self.norm = nn.LayerNorm(backbone.width, eps=backbone.config.norm_epsilon)
        self.activation = ACTIVATIONS[backbone.config.activation]
        self.bias = nn.Parameter(torch.zeros(backbone.token_table().shape[0]))

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        chosen = choose(rows, self.config.share, tokenizer)
        places = np.flatnonzero(chosen)
        keys, positions = rows.keys[rows.row_of_token[places]], rows.position_of_token[places]
        action = uniform(keys, ACTION, positions)
        ordinary = np.setdiff1d(np.arange(tokenizer.size), special_ids(tokenizer))
        drawn = ordinary[(uniform(keys, TOKEN, positions) * len(ordinary)).astype(np.int64)]
        answers = rows.ids[places]
        shown = np.where(action < self.config.mask + self.config.random, drawn, answers)
        ids = rows.ids.copy()
        ids[places] = np.where(action < self.config.mask, tokenizer.mask, shown)
        return replace(rows, ids=ids), {"masked_lm.places": places, "masked_lm.answers": answers}

    def hidden(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(P, W): the vectors at the asked places, transformed for the output table."""
        vectors = backbone(batch).vectors[batch.targets["masked_lm.places"]]
        return self.norm(self.activation(self.dense(vectors)))

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        return torch.addmm(self.bias, self.hidden(backbone, batch), backbone.token_table().t())

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        answers = batch.targets["masked_lm.answers"]
        loss, correct = tied_cross_entropy(self.hidden(backbone, batch), backbone.token_table(), self.bias, answers)
        return {self.name: Score(loss, correct, answers.shape[0])}


def special_ids(tokenizer: Tokenizer) -> np.ndarray:
    return np.array([tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad, tokenizer.unk])


def choose(rows: Rows, share: float, tokenizer: Tokenizer) -> np.ndarray:
    """(T,) bool: in each row the round(share x n) ordinary tokens with the smallest random numbers."""
    ordinary = ~(rows.special | np.isin(rows.ids, special_ids(tokenizer)))
    row = rows.row_of_token
    number = np.where(ordinary, uniform(rows.keys[row], CHOICE, rows.position_of_token), 2.0)
    available = np.bincount(row, weights=ordinary, minlength=len(rows.lengths)).astype(np.int64)
    wanted = np.minimum(np.maximum(1, np.rint(share * available)), available)
    order = np.lexsort((number, row))
    rank = np.empty(len(row), np.int64)
    rank[order] = rows.position_of_token  # rows keep their places in the sort, so positions count within each row
    return rank < wanted[row]
