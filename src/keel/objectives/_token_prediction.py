"""Token prediction at some positions of a batch, with a head tied to the input embeddings.

Shared by masked and causal language modelling, which differ only in what they mask and where they predict. In: an
encoded batch. Out: logits, or loss and accuracy.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.interfaces import CachedEncoder
from keel.values import Batch, Score


class TokenPrediction:
    """`predict` and `forward` of an objective with a `head`, a `config` and the targets `places` and `answers`."""

    name: str
    config: Any
    head: Any  # `Backbone.token_head()`

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(P, V): logits at the predicted positions."""
        logits: Tensor = self.head(self._vectors(encoder, batch), encoder.backbone.token_embeddings())
        return logits

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        answers, table = batch.targets[f"{self.name}.answers"], encoder.backbone.token_embeddings()
        loss, correct = self.head.score(self._vectors(encoder, batch), table, answers)
        return {self.name: Score(loss, correct, answers.shape[0], self.config.weight)}

    def _vectors(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        return encoder(batch).vectors[batch.targets[f"{self.name}.places"]]
