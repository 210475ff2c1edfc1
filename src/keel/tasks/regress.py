"""Regression: predict a number for a text or a pair, such as the similarity of two sentences (STS-B).

In: a table with the columns text, (pair,) label. Learns: mean squared error of one output. Out: the number.

Notable choices
- Targets are not normalised, as in `transformers`, so model folders can be exchanged.
- The prediction for a long text is the mean over its windows.

Shapes: R rows.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import torch.nn.functional as F

from keel.errors import UserError
from keel.in_memory import Source
from keel.interfaces import Backbone, CachedEncoder, Task, Tokenizer
from keel.metrics.correlation import pearson, spearman
from keel.report_tables import Plot, Table
from keel.tasks._pooled_head import PooledConfig, PooledObjective
from keel.tasks._scoring import Worst
from keel.tasks._text_rows import TextExample, open_texts, text_example, text_usage, text_windows
from keel.text.labelled import LabelledData
from keel.values import Batch, Evaluation, ExampleFile, Rows, Score, Scorer, Truncation, Window

PLOTTED = 2000  # points of the report's chart


class RegressConfig(PooledConfig):
    kind: Literal["regress"] = "regress"


class Regress(Task):
    Config = RegressConfig
    config: RegressConfig
    data: LabelledData

    def __init__(self, config: RegressConfig, data: LabelledData) -> None:
        super().__init__(config, data)
        self.usage = text_usage(data)

    def open(self, source: Source, labelled: bool = True) -> ExampleFile:
        return open_texts(source, self.data, _parse_number if labelled else None)

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
        rows = [Window(w.ids, w.segments, w.special, w.example, {"regress": targets[w.example]}) for w in windows]
        return rows, truncation

    def answer(
        self, examples: Sequence[TextExample], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        predictions: list[list[float]] = [[] for _ in examples]
        for window, output in zip(windows, outputs, strict=True):
            predictions[window.example].append(float(output[0]))
        return [{"value": sum(values) / len(values)} for values in predictions]

    def scorer(self) -> RegressScorer:
        return RegressScorer()


class RegressScorer(Scorer):
    """Keeps 16 bytes for each example: a rank correlation needs all numbers."""

    def __init__(self) -> None:
        self.answers, self.predictions, self.worst = array("d"), array("d"), Worst()

    def gold(self, example: TextExample) -> Any:
        return example.answer

    def update(self, examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> None:
        pairs = [(float(e.answer), float(a["value"])) for e, a in zip(examples, answers, strict=True)]
        self.answers.extend(gold for gold, _ in pairs)
        self.predictions.extend(predicted for _, predicted in pairs)
        self.worst.update(
            (-abs(pair[0] - pair[1]), (*pair, " | ".join(e.texts), e.where))
            for pair, e in zip(pairs, examples, strict=True)
        )

    def compute(self) -> Evaluation:
        gold, predicted = np.array(self.answers), np.array(self.predictions)
        metrics = {
            "spearman": spearman(gold, predicted),
            "pearson": pearson(gold, predicted),
            "mean_squared_error": float(np.mean((gold - predicted) ** 2)) if len(gold) else math.nan,
        }
        constant = len(gold) > 0 and bool(np.ptp(predicted) < 1e-3 * np.ptp(gold))
        return Evaluation(metrics, "spearman", constant, details=self._details)

    def _details(self) -> list[Table | Plot]:
        each = -(-len(self.answers) // PLOTTED) or 1
        points = sorted(zip(self.answers[::each], self.predictions[::each], strict=True))
        return [
            Plot("Predictions", points, "gold", "predicted", diagonal=True),
            Table("Worst errors", ("gold", "predicted", "text", "where"), self.worst.rows),
        ]


class RegressObjective(PooledObjective):
    name = "regress"

    def __init__(self, config: RegressConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone, outputs=1)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        return rows, {"regress.answers": rows.answers["regress"]}

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        values, answers = self.predict(encoder, batch).float().squeeze(1), batch.targets["regress.answers"]
        return {self.name: Score(F.mse_loss(values, answers, reduction="sum"), None, answers.shape[0])}


def _parse_number(field: Any) -> tuple[float | None, str]:
    """A label cell as a number, or the reason why it is not one."""
    try:
        value = float(field)
    except (TypeError, ValueError):
        return None, f"not a number: {str(field)[:40]!r}"
    return (value, "") if math.isfinite(value) else (None, f"not a finite number: {field}")
