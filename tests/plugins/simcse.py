"""A plug-in: unsupervised SimCSE (Gao et al. 2021): a sentence under two dropout masks is its own positive pair.

In: rows of one sentence (`data.packing: single-sentences`). Out: cross-entropy over the similarities of each sentence's
second view with all first views of the batch.

Shapes: R rows, W width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from keel.configs import ObjectiveConfig
from keel.interfaces import Backbone, CachedEncoder, Objective, Tokenizer
from keel.values import Batch, ObjectiveNeeds, Rows, Score


class SimCseConfig(ObjectiveConfig):
    temperature: float = Field(0.05, gt=0)


class SimCse(Objective):
    name = "simcse"
    needs = ObjectiveNeeds(vectors="rows", whole_batch=True)
    Config = SimCseConfig

    def __init__(self, config: SimCseConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        return rows, {"simcse.answers": np.arange(len(rows.lengths))}

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(R, R)"""
        first, second = (
            F.normalize(encoder.backbone.pool(encoding.vectors, batch), dim=1)
            for encoding in (encoder(batch), encoder.fresh(batch))
        )
        return second @ first.t() / self.config.temperature

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        similarities, answers = self.predict(encoder, batch).float(), batch.targets["simcse.answers"]
        loss = F.cross_entropy(similarities, answers, reduction="sum")
        correct = (similarities.argmax(1) == answers).sum()
        return {self.name: Score(loss, correct, answers.shape[0], self.config.weight)}
