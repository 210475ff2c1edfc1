"""Regression: predict a number for a text or a pair, such as the similarity of two sentences (STS-B).

In: a table with the columns text, (pair,) label. Learns: mean squared error of one output. Out: the number.

Notable choices
- Targets are not normalised, as in `transformers`, so model folders can be exchanged.
- The prediction for a long text is the mean over its windows.

Shapes: R rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import torch.nn.functional as F

from keel.errors import UserError
from keel.interfaces import Backbone, CachedEncoder, Task, Tokenizer
from keel.metrics.correlation import pearson, spearman
from keel.report_tables import Plot, Table
from keel.tasks._judging import WORST
from keel.tasks._pooled_head import PooledConfig, PooledObjective
from keel.tasks._text_rows import TextExample, read_texts, text_example, text_usage, text_windows
from keel.text.labelled import LabelledData
from keel.values import Batch, Examples, Judgement, Rows, Score, Truncation, Window


class RegressConfig(PooledConfig):
    kind: Literal["regress"] = "regress"


class Regress(Task):
    Config = RegressConfig
    config: RegressConfig
    data: LabelledData

    def __init__(self, config: RegressConfig, data: LabelledData) -> None:
        super().__init__(config, data)
        self.usage = text_usage(data)

    def read(self, path: str, labelled: bool = True) -> Examples:
        return read_texts(path, self.data, _parse_number if labelled else None)

    def example(self, given: Any) -> TextExample:
        return text_example(given, bool(self.data.pair))

    def fit_labels(self, examples: Sequence[TextExample]) -> Self:
        if len({e.answer for e in examples}) < 2:
            raise UserError(f"all {len(examples):,} rows have the same number; there is nothing to learn from them")
        return self

    def objective(self, backbone: Backbone) -> RegressObjective:
        return RegressObjective(self.config, backbone)

    def windows(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        windows, truncation = text_windows(examples, tokenizer, self.data)
        targets = [np.float32(e.answer or 0.0) for e in examples]
        return [replace(w, answers={"regress": targets[w.example]}) for w in windows], truncation

    def answer(
        self, examples: Sequence[TextExample], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        predictions: list[list[float]] = [[] for _ in examples]
        for window, output in zip(windows, outputs, strict=True):
            predictions[window.example].append(float(output[0]))
        return [{"value": sum(values) / len(values)} for values in predictions]

    def judge(self, examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> Judgement:
        gold, predicted = np.array([e.answer for e in examples]), np.array([a["value"] for a in answers])
        metrics = {
            "spearman": spearman(gold, predicted),
            "pearson": pearson(gold, predicted),
            "mean_squared_error": float(np.mean((gold - predicted) ** 2)) if len(gold) else math.nan,
        }
        constant = len(gold) > 0 and bool(np.ptp(predicted) < 1e-3 * np.ptp(gold))
        details = partial(_details, examples, answers)
        return Judgement(metrics, "spearman", [e.answer for e in examples], constant, details)


class RegressObjective(PooledObjective):
    name = "regress"

    def __init__(self, config: RegressConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone, outputs=1)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        return rows, {"regress.answers": rows.answers["regress"]}

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        values, answers = self.predict(encoder, batch).float().squeeze(1), batch.targets["regress.answers"]
        return {self.name: Score(F.mse_loss(values, answers, reduction="sum"), None, answers.shape[0])}


def _details(examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> list[Table | Plot]:
    pairs = [(float(e.answer), float(a["value"])) for e, a in zip(examples, answers, strict=True)]
    worst = sorted(range(len(pairs)), key=lambda n: -abs(pairs[n][0] - pairs[n][1]))[:WORST]
    rows = [(*pairs[n], " | ".join(examples[n].texts), examples[n].where) for n in worst]
    return [
        Plot("Predictions", sorted(pairs), "gold", "predicted", diagonal=True),
        Table("Worst errors", ("gold", "predicted", "text", "where"), rows),
    ]


def _parse_number(field: Any) -> tuple[float | None, str]:
    """A label cell as a number, or the reason why it is not one."""
    try:
        value = float(field)
    except (TypeError, ValueError):
        return None, f"not a number: {str(field)[:40]!r}"
    return (value, "") if math.isfinite(value) else (None, f"not a finite number: {field}")
