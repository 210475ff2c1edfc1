"""Classification: one text or a pair gets one label out of several, or any number of them.

In: a table with the columns text, (pair,) label. Learns: cross-entropy over the labels from one vector per row
(Devlin et al. 2018: [CLS] through the pooler), or a yes/no for each label where a text may have several. Out: the
label, its probability, and those of all labels.

Notable choices
- Labels are text and sorted (numbers as numbers), so that the same data gives the same order.
- `class_weights: auto` weighs a label by rows / (labels x its rows), as scikit-learn's "balanced"; the mean weight of a
  row is 1, so the learning rate keeps its meaning.
- The logits of a long text's windows are averaged.

Shapes: R rows, C labels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.corpus.text_rows import ROLES, TextExample, read_texts, text_example, text_windows
from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Cut, Objective, Plot, Rows, Score, Table, Task, Tokenizer, Window
from keel.layers.dropout import Dropout
from keel.layers.pooling import make_pooling
from keel.metrics import classification as metrics
from keel.text.labelled import LabelledData, find_columns
from keel.text.tables import Rejected

UNKNOWN = -1
LABELS_IN_MATRIX = 30  # a larger table of confusions is no use on a page
WORST = 20


class ClassifyConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["classify"] = "classify"
    labels: list[str] | None = Field(None, description="null: those of the training data")
    several: bool = Field(False, description="a text may have several labels, or none")
    separator: str = Field(",", min_length=1, description="between the labels of one cell, where there may be several")
    pooling: Literal["cls", "mean", "attention"] = "cls"
    dropout: float = Field(0.1, ge=0, lt=1)
    class_weights: Literal["auto"] | dict[str, float] | None = None
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing (Szegedy et al. 2016)")
    most_labels: int = Field(1000, ge=2, description="more labels than this are taken for a mistake")
    listed: int = Field(20, ge=1, description="labels an answer lists with their probabilities, likeliest first")


class Classify(Task):
    Config = ClassifyConfig

    def __init__(self, config: ClassifyConfig, data: LabelledData) -> None:
        self.config = config
        self.data = data
        self.headline = "micro_f1" if config.several else "accuracy"
        self.gist = "labels" if config.several else "label"
        if data.pair:
            self.several_texts = True
            self.usage = ('--pair "Another text." "A text."', '("A text.", "Another text.")')

    def bind(self, path: str) -> Classify:
        return Classify(self.config, find_columns(path, self.data, ROLES))

    def read(self, path: str, labelled: bool = True) -> tuple[list[TextExample], list[Rejected]]:
        return read_texts(path, self.data, self._answer_of if labelled else None)

    def _answer_of(self, field: Any) -> tuple[Any, str]:
        """A label, or a sorted tuple of labels; and why it cannot be used."""
        if not self.config.several:
            name = _name(field)
            return (name, self._unknown([name])) if name else (None, "empty label")
        given = field if isinstance(field, list) else _name(field).split(self.config.separator)
        names = tuple(sorted({_name(item) for item in given} - {""}))
        return names, self._unknown(names)

    def _unknown(self, names: Sequence[str]) -> str:
        strange = [name for name in names if self.config.labels and name not in self.config.labels]
        return f"unknown label '{strange[0][:40]}'; the training data has none like it" if strange else ""

    def example(self, given: Any) -> TextExample:
        return text_example(given, self.several_texts)

    def settle(self, examples: Sequence[TextExample]) -> Classify:
        counts = Counter(name for e in examples for name in (e.answer if self.config.several else [e.answer]))
        labels = self.config.labels or sorted(counts, key=_by_number)
        if len(labels) > self.config.most_labels:
            raise UserError(
                f"the label column has {len(labels):,} different values in {len(examples):,} rows; is it the right "
                "column? (numbers are the task regress; --set task.most_labels=N if this is meant)"
            )
        if not labels:
            raise UserError("no row has a label; is it the right column?")
        if len(labels) < 2 and not self.config.several:
            raise UserError(
                f"all {len(examples):,} rows have the label '{''.join(labels)}'; classification needs at least two. "
                "Is it the right column?"
            )
        weights = self.config.class_weights
        if weights == "auto":
            total = sum(counts.values())
            weights = {name: total / (len(labels) * counts[name]) if counts[name] else 1.0 for name in labels}
        elif weights and (strange := sorted(set(weights) - set(labels))):
            raise UserError(f"task.class_weights names '{strange[0]}', which is no label; there are {labels[:12]}")
        settled = self.config.model_copy(update={"labels": labels, "class_weights": weights})
        return Classify(settled, self.data)

    def objective(self, backbone: Backbone) -> ClassifyObjective:
        return ClassifyObjective(self.config, backbone)

    def windows(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> tuple[list[Window], Cut]:
        windows, cut = text_windows(examples, tokenizer, self.data)
        place = {name: number for number, name in enumerate(self.config.labels or [])}
        return [replace(w, answers={"classify": self._target(examples[w.example].answer, place)}) for w in windows], cut

    def _target(self, answer: Any, place: dict[str, int]) -> Any:
        if not self.config.several:
            return place.get(answer, UNKNOWN)
        target = np.zeros(len(place), np.float32)
        target[[place[name] for name in answer or () if name in place]] = 1.0
        return target

    def answer(
        self, examples: Sequence[TextExample], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        labels = self.config.labels or []
        sums, counts = np.zeros((len(examples), len(labels))), np.zeros((len(examples), 1))
        for window, output in zip(windows, outputs, strict=True):
            sums[window.example] += output
            counts[window.example] += 1
        logits = torch.from_numpy(sums / counts)
        chances = (logits.sigmoid() if self.config.several else logits.softmax(1)).numpy()
        return [self._shown(labels, row) for row in chances]

    def _shown(self, labels: list[str], chances: np.ndarray) -> dict[str, Any]:
        order = np.argsort(-chances, kind="stable")
        listed = {labels[n]: float(chances[n]) for n in order[: self.config.listed]}
        if self.config.several:
            return {"labels": [labels[n] for n in np.flatnonzero(chances > 0.5)], "probabilities": listed}
        return {"label": labels[order[0]], "probability": float(chances[order[0]]), "probabilities": listed}

    def score(self, examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> dict[str, float]:
        gold, guessed = self._numbers([e.answer for e in examples]), self._numbers([a[self.gist] for a in answers])
        if self.config.several:
            found = metrics.multilabel_f1_scores(gold > 0.5, guessed > 0.5)
            right = metrics.subset_accuracy(gold > 0.5, guessed > 0.5)
            return {"micro_f1": found.micro, "macro_f1": found.macro, "accuracy": right}
        scores = metrics.f1_scores(gold, guessed, len(self.config.labels or ()))
        figures = {"accuracy": metrics.accuracy(gold, guessed), "macro_f1": scores.macro}
        if len(scores.per_label) == 2:
            figures["f1"] = scores.per_label[1].f1
        figures["matthews"] = metrics.matthews(gold, guessed)
        figures["calibration_error"] = metrics.calibration(_confidence(answers), gold == guessed)[0]
        return figures

    def _numbers(self, given: Sequence[Any]) -> np.ndarray:
        """Labels as their numbers, or sets of labels as rows of 0 and 1."""
        place = {name: number for number, name in enumerate(self.config.labels or [])}
        return np.array([self._target(answer, place) for answer in given])

    def details(self, examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> list[Table | Plot]:
        labels = self.config.labels or []
        gold, guessed = self._numbers([e.answer for e in examples]), self._numbers([a[self.gist] for a in answers])
        several = self.config.several
        scores = metrics.multilabel_f1_scores(gold > 0.5, guessed > 0.5) if several else None
        found = (scores or metrics.f1_scores(gold, guessed, len(labels))).per_label
        rows = [(name, f.precision, f.recall, f.f1, f.support) for name, f in zip(labels, found, strict=True)]
        shown: list[Table | Plot] = [Table("Labels", ("label", "precision", "recall", "F1", "examples"), rows)]
        if not several:
            counts = metrics.confusion(gold, guessed, len(labels))
            if len(labels) <= LABELS_IN_MATRIX:
                matrix = [(name, *row) for name, row in zip(labels, counts.tolist(), strict=True)]
                note = "A row is a right label, a column what the model said."
                shown.append(Table("Confusion", ("", *labels), matrix, note, matrix=True))
            bins = metrics.calibration(_confidence(answers), gold == guessed)[1]
            points = [(bin.confidence, bin.accuracy) for bin in bins if bin.count]
            shown.append(Plot("Calibration", points, "how sure the model was", "share right", diagonal=True))
        wrong = [n for n, e in enumerate(examples) if _as_tuple(e.answer) != _as_tuple(answers[n][self.gist])]
        wrong.sort(key=lambda n: -answers[n].get("probability", 0.0))
        listed = [
            (_named(examples[n].answer), _named(answers[n][self.gist]), answers[n].get("probability", ""), *_texts(e))
            for n, e in ((n, examples[n]) for n in wrong[:WORST])
        ]
        columns = ("right", "said", "probability", "text", "where")
        return [*shown, Table("Worst errors", columns, listed, f"{len(wrong):,} of {len(examples):,} are wrong.")]


def _confidence(answers: Sequence[dict[str, Any]]) -> np.ndarray:
    return np.array([a["probability"] for a in answers])


def _as_tuple(labels: Any) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else tuple(sorted(labels))


def _named(labels: Any) -> str:
    return ", ".join(_as_tuple(labels)) or "none"


def _texts(example: TextExample) -> tuple[str, str]:
    return " | ".join(example.texts), example.where


class ClassifyObjective(Objective):
    name = "classify"

    def __init__(self, config: ClassifyConfig, backbone: Backbone) -> None:
        super().__init__()
        assert config.labels is not None, "labels are settled before the head is built"
        self.several = config.several
        self.smoothing = config.smoothing
        self.looks_at = "rows" if config.pooling == "cls" else "all"
        self.pooling = make_pooling(config.pooling, backbone.width)
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(backbone.width, len(config.labels))
        weights = config.class_weights
        self.label_weights = [float(weights.get(n, 1.0)) for n in config.labels] if isinstance(weights, dict) else None

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        return rows, {"classify.answers": rows.answers["classify"]}

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        pooled = self.pooling(backbone, backbone(batch).vectors, batch)
        logits: Tensor = self.out(self.dropout(pooled))
        return logits

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        logits, answers = self.predict(backbone, batch).float(), batch.targets["classify.answers"]
        weights = torch.tensor(self.label_weights, device=logits.device) if self.label_weights else None
        if self.several:
            eased = answers * (1 - self.smoothing) + 0.5 * self.smoothing
            loss = F.binary_cross_entropy_with_logits(logits, eased, pos_weight=weights, reduction="sum")
            right = ((logits > 0) == (answers > 0.5)).float().mean(1).sum()
        else:
            loss = F.cross_entropy(logits, answers, weights, label_smoothing=self.smoothing, reduction="sum")
            right = (logits.argmax(1) == answers).sum()
        return {self.name: Score(loss, right, answers.shape[0])}


def _name(field: Any) -> str:
    """A label as text: 1 and "1" are the same label, as they are in a csv file."""
    return field.strip() if isinstance(field, str) else "" if field is None else json.dumps(field, ensure_ascii=False)


def _by_number(label: str) -> tuple[int, float, str]:
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label
