"""What each attention head is worth: how much the answer changes when this head alone is switched off.

In: a model, a text or a pair, which answer (`targets.py`). Out: `HeadChanges`: for each layer and head the score
without the head minus the score with it (Michel et al. 2019: "Are sixteen heads really better than one?").

Notable choices
- A head is switched off by zeroing its output before the output projection. All copies of the text, one for each head,
  are rows of ordinary batches: `Inspection.head_factors` says which head is off in which row.
- Negative: the head supports the answer. For an encoder without a head for an answer, the value is the cosine distance
  between the vectors of the text with and without the head; it is never negative.

Shapes: N layers, H heads, R rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from keel.explain.attention import attention_shape
from keel.explain.reading import ExplainedModel, Reading
from keel.explain.targets import Choice, Done, Report, Target, find_target
from keel.learner.windows import BATCH_TOKENS
from keel.values import Inspection


@dataclass(frozen=True)
class HeadChanges:
    reading: Reading
    answer: dict[str, Any]
    value: float  # with all heads
    changes: np.ndarray  # (N, H) float32

    @property
    def measure(self) -> str:
        if self.answer["kind"] == "vector":
            return "cosine distance of the text's vector when the head is off"
        return f"change of the {self.answer['name']} when the head is off"

    def ranked(self) -> list[tuple[int, int, float]]:
        """Layer, head and change, the largest change first; counted from 1."""
        order = np.argsort(-np.abs(self.changes), axis=None, kind="stable")
        return [
            (int(n) + 1, int(h) + 1, float(self.changes[n, h]))
            for n, h in zip(*np.unravel_index(order, self.changes.shape), strict=True)
        ]

    def as_json(self) -> dict[str, Any]:
        found = self.reading.as_json("heads") | {"answer": self.answer, "value": self.value, "measure": self.measure}
        return found | {"shape": list(self.changes.shape), "changes": self.changes.tolist()}


@torch.no_grad()
def heads(
    model: ExplainedModel,
    text: str,
    pair: Any = None,
    *,
    label: str | None = None,
    token: str | None = None,
    word: str | None = None,
    scale: str | None = None,
    report: Report | None = None,
) -> HeadChanges:
    """The change of the answer for each head that is switched off. `report`: told how many heads are done."""
    choice = Choice(label, token, word, scale)
    target = find_target(model, text, pair, choice, ("probability", "log-probability"), vectors=True)
    layers, count = attention_shape(model, target.reading)
    value = float(target.scores(target.ids)[0])
    without = _without_each(target, layers, count, report)
    changes = np.maximum(1 - without, 0) if target.answer["kind"] == "vector" else without - value
    return HeadChanges(target.reading, target.answer, value, changes.astype(np.float32))


def _without_each(target: Target, layers: int, count: int, report: Report | None) -> np.ndarray:
    """(N, H): the score without each head."""
    off, device = layers * count, target.model.device
    together = max(1, BATCH_TOKENS // len(target.reading.ids))
    found = []
    for first in range(0, off, together):
        if report:
            report(Done(first, off))
        numbers = torch.arange(first, min(first + together, off), device=device)
        rows = torch.arange(len(numbers), device=device)
        factors = torch.ones(layers, len(numbers), count, device=device)
        factors[numbers // count, rows, numbers % count] = 0
        ids = np.repeat(target.ids, len(numbers), 0)
        found.append(target.scores(ids, Inspection(head_factors=factors)).cpu().double().numpy())
    return np.concatenate(found).reshape(layers, count)
