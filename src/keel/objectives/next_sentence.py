"""Next-sentence prediction (Devlin et al. 2018): does segment B follow segment A, or is it from another document?

In: rows packed as pairs; the packer drew the answer, because it decides which text a row consumes. Out: loss and
accuracy of a two-way choice on the pooled [CLS] vector: 0 follows, 1 random, as in the published checkpoints.
"""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Objective, Rows, Score, Tokenizer


class NextSentenceConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weight: float = Field(1.0, gt=0)


class NextSentence(Objective):
    name = "next_sentence"
    packing = "pairs"
    looks_at = "rows"
    Config = NextSentenceConfig

    def __init__(self, config: NextSentenceConfig, backbone: Backbone) -> None:
        super().__init__()
        if not getattr(backbone, "pooler", None):
            raise UserError(f"{self.name} needs a backbone with a pooler: set model.backbone.pooler=true")
        self.config = config
        self.weight = config.weight
        self.classifier = nn.Linear(backbone.width, 2)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        return rows, {f"{self.name}.answers": rows.answers[self.name]}

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        logits: Tensor = self.classifier(backbone.pool(backbone(batch).vectors, batch))
        return logits

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        logits, answers = self.predict(backbone, batch), batch.targets[f"{self.name}.answers"]
        loss = F.cross_entropy(logits, answers, reduction="sum")
        return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), answers.shape[0])}
