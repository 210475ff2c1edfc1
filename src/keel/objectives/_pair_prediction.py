"""Binary classification of the two segments of a row from its pooled vector; the packer draws the label.

Shared by next-sentence and sentence-order prediction, which differ only in how the packer forms the pairs. In: rows of
two segments. Out: loss and accuracy.
"""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from keel.configs import ObjectiveConfig
from keel.errors import UserError
from keel.interfaces import Backbone, CachedEncoder, Objective, Tokenizer
from keel.values import Batch, Rows, Score


class PairPrediction(Objective):
    def __init__(self, config: ObjectiveConfig, backbone: Backbone) -> None:
        super().__init__()
        if backbone.pooler is None:
            raise UserError(f"{self.name} needs a backbone with a pooler: set model.backbone.pooler=true")
        self.config = config
        self.classifier = nn.Linear(backbone.width, 2)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        return rows, {f"{self.name}.answers": rows.answers[self.name]}

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(R, 2)"""
        logits: Tensor = self.classifier(encoder.backbone.pool(encoder(batch).vectors, batch))
        return logits

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        logits, answers = self.predict(encoder, batch), batch.targets[f"{self.name}.answers"]
        loss = F.cross_entropy(logits, answers, reduction="sum")
        correct = (logits.argmax(1) == answers).sum()
        return {self.name: Score(loss, correct, answers.shape[0], self.config.weight)}
