"""Causal language modelling (Radford et al. 2018): predict each token from those before it.

In: rows, unmasked: the backbone's attention is causal. Out: loss and accuracy at every token but a row's first. All
tokens contribute to the loss, but each has left context only; with BERT's backbone this is the paper's "LTR & no NSP".
"""

from __future__ import annotations

import numpy as np

from keel.configs import ObjectiveConfig
from keel.errors import UserError
from keel.interfaces import Backbone, Objective, Tokenizer
from keel.objectives._token_prediction import TokenPrediction
from keel.values import ObjectiveNeeds, Rows


class CausalLMConfig(ObjectiveConfig):
    pass


class CausalLM(TokenPrediction, Objective):
    name = "causal_lm"
    needs = ObjectiveNeeds(vectors="places")
    Config = CausalLMConfig

    def __init__(self, config: CausalLMConfig, backbone: Backbone) -> None:
        super().__init__()
        if backbone.config.context != "left":
            raise UserError("causal_lm needs a causal backbone: kind gpt, or attention.causal=true")
        self.config = config
        self.head = backbone.token_head()

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        places = np.setdiff1d(np.arange(len(rows.ids)), rows.ends)
        return rows, {"causal_lm.places": places, "causal_lm.answers": rows.ids[places + 1]}
