"""Masked language modelling (Devlin et al. 2018): predict 15 % of the tokens from the rest.

In: rows. Of the selected tokens, 80 % become [MASK], 10 % a random token, and 10 % stay unchanged. Why not always
[MASK]: it never occurs after pretraining; random tokens make the model check every word against its context, unchanged
ones keep a word's own information in its vector. Out: loss and accuracy at the selected tokens only.

Notable choices
- What is selected (`unit`): tokens, whole words, n-grams or spans; see `_masking.py`.
- MLM as correction (Cui et al. 2020) replaces tokens with a similar token instead of [MASK]: set `similar_replace_prob`
  instead of `mask_replace_prob`. Similar tokens are the CANDIDATES nearest neighbours by cosine of the model's current
  token embeddings: noise early in a run, meaningful later.
- The selection derives from the row's key. Rows that never repeat are masked dynamically; a stream that repeats its
  rows (`data.static_masks`) repeats their masks.
- Logits are computed at the selected tokens only: the output layer is most of a small model's work.

Shapes: T tokens, P selected tokens, S of them replaced by a similar token, W width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator

from keel.configs import ObjectiveConfig
from keel.errors import UserError
from keel.interfaces import Backbone, CachedEncoder, Objective, Tokenizer
from keel.objectives._masking import Unit, need_mask_token, select_tokens, special_ids
from keel.objectives._token_prediction import TokenPrediction
from keel.randomness import Draw, uniform
from keel.values import Batch, ObjectiveNeeds, Rows, Score

CANDIDATES = 10


class MaskedLMConfig(ObjectiveConfig):
    mask_prob: float = Field(0.15, gt=0, lt=1, description="fraction of tokens that are predicted")
    unit: Unit = Field("token", description="unit of selection; word boundaries are those stored in the corpus")
    max_words: int = Field(3, ge=1, description="words of an ngram or span, at most")
    mask_replace_prob: float = Field(0.8, ge=0, le=1, description="fraction of selected tokens replaced by [MASK]")
    similar_replace_prob: float = Field(
        0.0, ge=0, le=1, description="fraction of selected tokens replaced by a similar token"
    )
    random_replace_prob: float = Field(
        0.1, ge=0, le=1, description="fraction of selected tokens replaced by a random token"
    )

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask_replace_prob + self.similar_replace_prob + self.random_replace_prob > 1 + 1e-9:
            raise ValueError(
                f"mask_replace_prob {self.mask_replace_prob}, similar_replace_prob {self.similar_replace_prob} and "
                f"random_replace_prob {self.random_replace_prob} together exceed 1"
            )
        return self


class MaskedLM(TokenPrediction, Objective):
    name = "masked_lm"
    needs = ObjectiveNeeds(vectors="places")
    Config = MaskedLMConfig

    def __init__(self, config: MaskedLMConfig, backbone: Backbone) -> None:
        super().__init__()
        if backbone.config.context == "left":
            raise UserError("masked_lm needs a bidirectional backbone; use causal_lm with a causal one")
        self.config = config
        self.head = backbone.token_head()

    def attach_corpus(self, tokenizer: Tokenizer, count_tokens: object) -> None:
        need_mask_token(self.name, tokenizer)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        config = self.config
        places = np.flatnonzero(select_tokens(rows, config.mask_prob, tokenizer, config.unit, config.max_words))
        keys, positions = rows.keys[rows.row_of_token[places]], rows.position_of_token[places]
        action, draw = uniform(keys, Draw.MASK_ACTION, positions), uniform(keys, Draw.RANDOM_TOKEN, positions)
        ordinary = np.setdiff1d(np.arange(tokenizer.size), special_ids(tokenizer))
        masked = config.mask_replace_prob
        replaced = masked + config.similar_replace_prob
        answers, ids = rows.ids[places], rows.ids.copy()
        similar = (action >= masked) & (action < replaced)
        shown = np.where(action < replaced + config.random_replace_prob, ordinary[_index(draw, ordinary)], answers)
        ids[places] = np.where(action < masked, tokenizer.mask, np.where(similar, answers, shown))
        targets = {"masked_lm.places": places, "masked_lm.answers": answers}
        if config.similar_replace_prob:
            targets |= {"masked_lm.similar": places[similar], "masked_lm.draws": draw[similar]}
            targets |= {"masked_lm.excluded": special_ids(tokenizer)}
        return replace(rows, ids=ids), targets

    @torch.no_grad()
    def corrupt(self, encoder: CachedEncoder, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        if "masked_lm.similar" not in batch.targets:  # the batch may have been prepared with other options
            return batch, {}
        places, draws = batch.targets["masked_lm.similar"], batch.targets["masked_lm.draws"]
        table = F.normalize(encoder.backbone.token_embeddings(), dim=1)
        similarity = table[batch.ids[places]] @ table.t()  # (S, V)
        similarity.index_fill_(1, batch.targets["masked_lm.excluded"], -2.0)
        similarity.scatter_(1, batch.ids[places][:, None], -2.0)
        candidates = min(CANDIDATES, similarity.shape[1] - len(batch.targets["masked_lm.excluded"]) - 1)
        best = similarity.topk(candidates).indices
        number = (draws * best.shape[1]).long().clamp(max=best.shape[1] - 1)
        shown = best.gather(1, number[:, None]).squeeze(1)
        return replace(batch, ids=batch.ids.index_copy(0, places, shown), spellings=None), {}


def _index(draw: np.ndarray, among: np.ndarray) -> np.ndarray:
    return (draw * len(among)).astype(np.int64)
