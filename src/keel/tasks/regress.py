"""Regression: one text or a pair gets a number, such as the similarity of two sentences (STS-B).

In: a table with the columns text, (pair,) label. Learns: the squared error of one output. Out: the number.

Notable choice: the numbers are learnt as they are, as `transformers` does, so the folders of both mean the same. The
mean over a long text's windows is its answer.

Shapes: R rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.corpus.text_rows import ROLES, TextExample, read_texts, text_example, text_windows
from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Cut, Objective, Plot, Rows, Score, Table, Task, Tokenizer, Window
from keel.layers.dropout import Dropout
from keel.layers.pooling import make_pooling
from keel.metrics.correlation import pearson, spearman
from keel.text.labelled import LabelledData, find_columns
from keel.text.tables import Rejected

WORST = 20


class RegressConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["regress"] = "regress"
    pooling: Literal["cls", "mean", "attention"] = "cls"
    dropout: float = Field(0.1, ge=0, lt=1)


class Regress(Task):
    Config = RegressConfig
    headline = "spearman"
    gist = "value"

    def __init__(self, config: RegressConfig, data: LabelledData) -> None:
        self.config = config
        self.data = data
        if data.pair:
            self.several_texts = True
            self.usage = ('--pair "Another text." "A text."', '("A text.", "Another text.")')

    def bind(self, path: str) -> Regress:
        return Regress(self.config, find_columns(path, self.data, ROLES))

    def read(self, path: str, labelled: bool = True) -> tuple[list[TextExample], list[Rejected]]:
        return read_texts(path, self.data, _number if labelled else None)

    def example(self, given: Any) -> TextExample:
        return text_example(given, self.several_texts)

    def settle(self, examples: Sequence[TextExample]) -> Regress:
        if len({e.answer for e in examples}) < 2:
            raise UserError(f"all {len(examples):,} rows have the same number; there is nothing to learn from them")
        return self

    def objective(self, backbone: Backbone) -> RegressObjective:
        return RegressObjective(self.config, backbone)

    def windows(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> tuple[list[Window], Cut]:
        windows, cut = text_windows(examples, tokenizer, self.data)
        return [replace(w, answers={"regress": np.float32(examples[w.example].answer or 0.0)}) for w in windows], cut

    def answer(
        self, examples: Sequence[TextExample], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        found: list[list[float]] = [[] for _ in examples]
        for window, output in zip(windows, outputs, strict=True):
            found[window.example].append(float(output[0]))
        return [{"value": sum(values) / len(values)} for values in found]

    def score(self, examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> dict[str, float]:
        gold, guessed = np.array([e.answer for e in examples]), np.array([a["value"] for a in answers])
        return {
            "spearman": spearman(gold, guessed),
            "pearson": pearson(gold, guessed),
            "mean_squared_error": float(np.mean((gold - guessed) ** 2)) if len(gold) else math.nan,
        }

    def degenerate(self, examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> bool:
        gold, said = (np.ptp(values) for values in ([e.answer for e in examples], [a["value"] for a in answers]))
        return bool(said < 1e-3 * gold)

    def details(self, examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> list[Table | Plot]:
        pairs = [(float(e.answer), float(a["value"])) for e, a in zip(examples, answers, strict=True)]
        worst = sorted(range(len(pairs)), key=lambda n: -abs(pairs[n][0] - pairs[n][1]))[:WORST]
        rows = [(*pairs[n], " | ".join(examples[n].texts), examples[n].where) for n in worst]
        return [
            Plot("Answers", sorted(pairs), "right number", "the model's", diagonal=True),
            Table("Worst errors", ("right", "said", "text", "where"), rows),
        ]


class RegressObjective(Objective):
    name = "regress"

    def __init__(self, config: RegressConfig, backbone: Backbone) -> None:
        super().__init__()
        self.looks_at = "rows" if config.pooling == "cls" else "all"
        self.pooling = make_pooling(config.pooling, backbone.width)
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(backbone.width, 1)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        return rows, {"regress.answers": rows.answers["regress"]}

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        value: Tensor = self.out(self.dropout(self.pooling(backbone, backbone(batch).vectors, batch)))
        return value

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        values, answers = self.predict(backbone, batch).float().squeeze(1), batch.targets["regress.answers"]
        return {self.name: Score(F.mse_loss(values, answers, reduction="sum"), None, answers.shape[0])}


def _number(field: Any) -> tuple[float | None, str]:
    try:
        value = float(field)
    except (TypeError, ValueError):
        return None, f"not a number: {str(field)[:40]!r}"
    return (value, "") if math.isfinite(value) else (None, f"not a finite number: {field}")
