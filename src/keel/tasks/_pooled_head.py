"""The head of tasks with one output per row: pooling, dropout, a linear layer.

In: (T, W) vectors of a flat batch. Out: (R, outputs).

Shapes: T tokens, R rows, W width.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from keel.configs import TaskConfig
from keel.interfaces import Backbone, CachedEncoder, Objective
from keel.layers.dropout import Dropout
from keel.layers.pooling import make_pooling
from keel.values import Batch, ObjectiveNeeds


class PooledConfig(TaskConfig):
    pooling: Literal["cls", "mean", "attention"] = "cls"
    dropout: float = Field(0.1, ge=0, lt=1)


class PooledObjective(Objective):
    def __init__(self, config: PooledConfig, backbone: Backbone, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.needs = ObjectiveNeeds(vectors="rows" if config.pooling == "cls" else "all")
        self.pooling = make_pooling(config.pooling, backbone.width)
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(backbone.width, outputs)

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(R, outputs)"""
        pooled = self.pooling(encoder.backbone, encoder(batch).vectors, batch)
        outputs: Tensor = self.out(self.dropout(pooled))
        return outputs
