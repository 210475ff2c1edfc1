"""Classification of a text or a pair of texts, single-label or multi-label.

In: a table with the columns text, (pair,) label. Learns: cross-entropy over the labels from one vector per row
(Devlin et al. 2018: [CLS] through the pooler), or binary cross-entropy per label if a text may have several.
Out: the label, its probability, and those of the other labels.

Notable choices
- Labels are text and sorted (numbers as numbers), so that the same data gives the same order.
- `class_weights: auto` weights a label by rows / (labels x its rows), as scikit-learn's "balanced"; the mean weight of
  a row is 1, so the learning rate keeps its meaning.
- The logits of a long text's windows are averaged.

Shapes: R rows, C labels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from keel.errors import UserError
from keel.in_memory import Source
from keel.interfaces import Backbone, CachedEncoder, Task, Tokenizer
from keel.tasks._classify_scorer import MultiLabelScorer, SingleLabelScorer
from keel.tasks._pooled_head import PooledConfig, PooledObjective
from keel.tasks._text_rows import TextExample, open_texts, text_example, text_usage, text_windows
from keel.text.labelled import LabelledData
from keel.text.records import listed
from keel.values import Batch, ExampleFile, Rows, Score, Scorer, Truncation, Window

UNKNOWN = -1


class ClassifyConfig(PooledConfig):
    kind: Literal["classify"] = "classify"
    labels: list[str] | None = Field(None, description="null: those of the training data")
    multi_label: bool = Field(False, description="a text may have several labels, or none")
    separator: str = Field(",", min_length=1, description="between the labels of one cell, with multi_label")
    class_weights: Literal["auto"] | dict[str, float] | None = None
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Szegedy et al. 2016")
    max_labels: int = Field(1000, ge=2, description="more labels than this are considered a mistake")
    top_labels: int = Field(20, ge=1, description="labels listed in an answer, with their probabilities")


class Classify(Task):
    Config = ClassifyConfig
    config: ClassifyConfig
    data: LabelledData

    def __init__(self, config: ClassifyConfig, data: LabelledData) -> None:
        super().__init__(config, data)
        self.usage = text_usage(data)

    def open(self, source: Source, labelled: bool = True) -> ExampleFile:
        return open_texts(source, self.data, self._parse_label if labelled else None)

    def _parse_label(self, field: Any) -> tuple[Any, str]:
        """A label, or a sorted tuple of labels; and the reason if it cannot be used."""
        if not self.config.multi_label:
            name = _label_text(field)
            return (name, self._unknown_label([name])) if name else (None, "empty label")
        given = field if isinstance(field, list) else _label_text(field).split(self.config.separator)
        names = tuple(sorted({_label_text(item) for item in given} - {""}))
        return names, self._unknown_label(names)

    def _unknown_label(self, names: Sequence[str]) -> str:
        unknown = [name for name in names if self.config.labels and name not in self.config.labels]
        if not unknown:
            return ""
        return (
            f"unknown label '{unknown[0][:40]}': not in the training data, which has {listed(self.config.labels or [])}"
        )

    def example(self, given: Any) -> TextExample:
        return text_example(given, bool(self.data.pair))

    def fit_labels(self, examples: Sequence[TextExample]) -> Self:
        counts = Counter(name for e in examples for name in (e.answer if self.config.multi_label else [e.answer]))
        labels = self.config.labels or sorted(counts, key=_sort_key)
        if len(labels) > self.config.max_labels:
            raise UserError(
                f"the label column has {len(labels):,} different values in {len(examples):,} rows; is it the right "
                "column? (for numbers use the task regress; if this is intended: --set task.max_labels=N)"
            )
        if not labels:
            raise UserError("no row has a label; is it the right column?")
        if len(labels) < 2 and not self.config.multi_label:
            raise UserError(
                f"all {len(examples):,} rows have the label '{''.join(labels)}'; classification needs at least two. "
                "Is it the right column?"
            )
        return self.replace(config={"labels": labels, "class_weights": self._class_weights(labels, counts)})

    def _class_weights(self, labels: list[str], counts: Counter[str]) -> dict[str, float] | None:
        weights = self.config.class_weights
        if weights == "auto":
            total = sum(counts.values())
            return {name: total / (len(labels) * counts[name]) if counts[name] else 1.0 for name in labels}
        if weights and (unknown := sorted(set(weights) - set(labels))):
            raise UserError(f"task.class_weights names '{unknown[0]}', which is not a label; labels: {labels[:12]}")
        return weights

    def objective(self, backbone: Backbone) -> ClassifyObjective:
        return ClassifyObjective(self.config, backbone)

    def windows(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        windows, truncation = text_windows(examples, tokenizer, self.data)
        targets = self._targets([e.answer for e in examples])
        rows = [Window(w.ids, w.segments, w.special, w.example, {"classify": targets[w.example]}) for w in windows]
        return rows, truncation

    def _targets(self, answers: Sequence[Any]) -> list[Any]:
        """Labels as indices, or sets of labels as multi-hot vectors."""
        numbers = {name: number for number, name in enumerate(self.config.labels or [])}
        if not self.config.multi_label:
            return [numbers.get(answer, UNKNOWN) for answer in answers]
        targets = np.zeros((len(answers), len(numbers)), np.float32)
        for target, answer in zip(targets, answers, strict=True):
            target[[numbers[name] for name in answer or () if name in numbers]] = 1.0
        return list(targets)

    def answer(
        self, examples: Sequence[TextExample], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        labels = self.config.labels or []
        sums, counts = np.zeros((len(examples), len(labels))), np.zeros((len(examples), 1))
        for window, output in zip(windows, outputs, strict=True):
            sums[window.example] += output
            counts[window.example] += 1
        logits = torch.from_numpy(sums / counts)
        chances = (logits.sigmoid() if self.config.multi_label else logits.softmax(1)).numpy()
        return [self._format_answer(labels, row) for row in chances]

    def _format_answer(self, labels: list[str], chances: np.ndarray) -> dict[str, Any]:
        order = np.argsort(-chances, kind="stable")
        top = {labels[n]: float(chances[n]) for n in order[: self.config.top_labels]}
        if self.config.multi_label:
            return {"labels": [labels[n] for n in np.flatnonzero(chances > 0.5)], "probabilities": top}
        return {"label": labels[order[0]], "probability": float(chances[order[0]]), "probabilities": top}

    def scorer(self) -> Scorer:
        kind = MultiLabelScorer if self.config.multi_label else SingleLabelScorer
        return kind(self.config.labels or [], self._targets)


class ClassifyObjective(PooledObjective):
    name = "classify"

    def __init__(self, config: ClassifyConfig, backbone: Backbone) -> None:
        assert config.labels is not None, "labels are known before the head is built"
        super().__init__(config, backbone, len(config.labels))
        weights = config.class_weights
        self.label_weights = [float(weights.get(n, 1.0)) for n in config.labels] if isinstance(weights, dict) else None

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        return rows, {"classify.answers": rows.answers["classify"]}

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        logits, answers = self.predict(encoder, batch).float(), batch.targets["classify.answers"]
        weights = torch.tensor(self.label_weights, device=logits.device) if self.label_weights else None
        smoothing = self.config.label_smoothing
        if self.config.multi_label:
            smoothed = answers * (1 - smoothing) + 0.5 * smoothing
            loss = F.binary_cross_entropy_with_logits(logits, smoothed, pos_weight=weights, reduction="sum")
            right = ((logits > 0) == (answers > 0.5)).float().mean(1).sum()
        else:
            loss = F.cross_entropy(logits, answers, weights, label_smoothing=smoothing, reduction="sum")
            right = (logits.argmax(1) == answers).sum()
        return {self.name: Score(loss, right, answers.shape[0])}


def _label_text(field: Any) -> str:
    """A label as text: 1 and "1" are the same label, as they are in a csv file."""
    return field.strip() if isinstance(field, str) else "" if field is None else json.dumps(field, ensure_ascii=False)


def _sort_key(label: str) -> tuple[int, float, str]:
    """Numbers first, by their value."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label
