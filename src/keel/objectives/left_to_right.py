"""Left-to-right language modelling (Radford et al. 2018): guess each token from those before it.

In: rows, nothing hidden: the backbone's own mask hides what comes later. Out: loss and accuracy at every token but a
row's first. All tokens teach, but each sees one side only; with BERT's backbone this is the paper's "LTR & no NSP".
"""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Objective, Rows, Score, Tokenizer
from keel.layers.token_head import TokenHead


class LeftToRightConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weight: float = Field(1.0, gt=0)


class LeftToRight(Objective):
    name = "left_to_right"
    looks_at = "places"
    Config = LeftToRightConfig

    def __init__(self, config: LeftToRightConfig, backbone: Backbone) -> None:
        super().__init__()
        if not backbone.causal:
            raise UserError("left_to_right needs a backbone that does not look ahead: kind gpt, or attention.look=left")
        self.config = config
        self.weight = config.weight
        self.head = TokenHead(backbone)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        places = np.setdiff1d(np.arange(len(rows.ids)), rows.ends)
        return rows, {"left_to_right.places": places, "left_to_right.answers": rows.ids[places + 1]}

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        found: Tensor = self.head(self._vectors(backbone, batch), backbone.token_table())
        return found

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        answers = batch.targets["left_to_right.answers"]
        loss, correct = self.head.score(self._vectors(backbone, batch), backbone.token_table(), answers)
        return {self.name: Score(loss, correct, answers.shape[0])}

    def _vectors(self, backbone: Backbone, batch: Batch) -> Tensor:
        return backbone(batch).vectors[batch.targets["left_to_right.places"]]
