"""Scores predicted labels. In: examples and answers of the task classify. Out: metrics, and tables for the report."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from math import nan
from typing import Any

import numpy as np

from keel.metrics import classification as metrics
from keel.report_tables import Plot, Table
from keel.tasks._scoring import Variety, Worst
from keel.tasks._text_rows import TextExample
from keel.values import Evaluation, Scorer

LABELS_IN_MATRIX = 30  # a larger confusion matrix does not fit on a page

ToTargets = Callable[[Sequence[Any]], list[Any]]  # answers as label indices, or as multi-hot vectors


class _LabelScorer(Scorer):
    """What both scorers share: counts of wrong answers, and the worst of them."""

    said: str  # the key of the predicted label or labels in an answer

    def __init__(self, labels: Sequence[str], to_targets: ToTargets) -> None:
        self.labels, self.to_targets = labels, to_targets
        self.variety, self.worst = Variety(), Worst()
        self.examples = self.wrong = 0

    def gold(self, example: TextExample) -> Any:
        return example.answer

    def update(self, examples: Sequence[TextExample], answers: Sequence[dict[str, Any]]) -> None:
        gold, predicted = [e.answer for e in examples], [a[self.said] for a in answers]
        self.variety.update(gold, predicted)
        self.examples += len(examples)
        errors = []
        for example, labels, answer in zip(examples, predicted, answers, strict=True):
            right, guessed = _as_tuple(example.answer), _as_tuple(labels)
            if right != guessed:
                chance = answer.get("probability")
                shown = ", ".join(right) or "none", ", ".join(guessed) or "none", "" if chance is None else chance
                errors.append((-(chance or 0.0), (*shown, " | ".join(example.texts), example.where)))
        self.wrong += len(errors)
        self.worst.update(errors)
        if examples:
            self.count(np.array(self.to_targets(gold)), np.array(self.to_targets(predicted)), answers)

    @abstractmethod
    def count(self, right: np.ndarray, guessed: np.ndarray, answers: Sequence[dict[str, Any]]) -> None:
        """Adds gold and predicted labels, as indices or as multi-hot vectors."""

    def f1_by_label(self, scores: metrics.F1Scores) -> dict[str, float]:
        return {name: f.f1 for name, f in zip(self.labels, scores.per_label, strict=True)}

    def label_table(self, scores: metrics.F1Scores) -> Table:
        scored = zip(self.labels, scores.per_label, strict=True)
        rows = [(name, f.precision, f.recall, f.f1, f.support) for name, f in scored]
        return Table("Labels", ("label", "precision", "recall", "F1", "examples"), rows)

    def error_table(self) -> Table:
        columns = ("gold", "predicted", "probability", "text", "where")
        note = f"{self.wrong:,} of {self.examples:,} are wrong."
        return Table("Worst errors", columns, self.worst.rows, note)


class SingleLabelScorer(_LabelScorer):
    said = "label"

    def __init__(self, labels: Sequence[str], to_targets: ToTargets) -> None:
        super().__init__(labels, to_targets)
        self.confusion = np.zeros((len(labels), len(labels)), np.int64)
        self.calibration = metrics.Calibration()

    def count(self, right: np.ndarray, guessed: np.ndarray, answers: Sequence[dict[str, Any]]) -> None:
        self.confusion += metrics.confusion(right, guessed, len(self.labels))
        self.calibration.update([a["probability"] for a in answers], right == guessed)

    def compute(self) -> Evaluation:
        scores = metrics.f1_scores(self.confusion)
        accuracy = float(self.confusion.trace() / self.examples) if self.examples else nan
        figures = {"accuracy": accuracy, "macro_f1": scores.macro}
        if len(scores.per_label) == 2:
            figures["f1"] = scores.per_label[1].f1
        figures["matthews"] = metrics.matthews(self.confusion)
        figures["calibration_error"] = self.calibration.error
        majority = float(self.confusion.sum(axis=1).max(initial=0) / max(1, self.examples))
        by_label = self.f1_by_label(scores)
        return Evaluation(figures, "accuracy", self.variety.constant, majority, self._details, by_label)

    def _details(self) -> list[Table | Plot]:
        points = [(bin.confidence, bin.accuracy) for bin in self.calibration.bins if bin.count]
        calibration = Plot("Calibration", points, "confidence", "accuracy", diagonal=True)
        table = self.label_table(metrics.f1_scores(self.confusion))
        return [table, *self._confusion_matrix(), calibration, self.error_table()]

    def _confusion_matrix(self) -> list[Table]:
        """Empty if there are too many labels."""
        if len(self.labels) > LABELS_IN_MATRIX:
            return []
        rows = [(name, *row) for name, row in zip(self.labels, self.confusion.tolist(), strict=True)]
        note = "Rows are gold labels, columns are predicted labels."
        return [Table("Confusion", ("", *self.labels), rows, note, matrix=True)]


class MultiLabelScorer(_LabelScorer):
    said = "labels"

    def __init__(self, labels: Sequence[str], to_targets: ToTargets) -> None:
        super().__init__(labels, to_targets)
        self.counts, self.exact = np.zeros((3, len(labels)), np.int64), 0

    def count(self, right: np.ndarray, guessed: np.ndarray, answers: Sequence[dict[str, Any]]) -> None:
        right, guessed = right > 0.5, guessed > 0.5
        self.counts += metrics.multilabel_counts(right, guessed)
        self.exact += int((right == guessed).all(axis=1).sum())

    def compute(self) -> Evaluation:
        scores = metrics.multilabel_f1_scores(self.counts)
        accuracy = self.exact / self.examples if self.examples else nan
        figures = {"micro_f1": scores.micro, "macro_f1": scores.macro, "accuracy": accuracy}
        details = partial(self._details, scores)
        by_label = self.f1_by_label(scores)
        return Evaluation(figures, "micro_f1", self.variety.constant, self._best_constant(), details, by_label)

    def _best_constant(self) -> float:
        """The micro F1 of the best set of labels that is the same for all examples: some of the most frequent."""
        gold = np.sort(self.counts[2])[::-1]
        guessed = self.examples * np.arange(1, len(gold) + 1)
        return float((2 * gold.cumsum() / np.maximum(1, guessed + gold.sum())).max(initial=0.0))

    def _details(self, scores: metrics.F1Scores) -> list[Table | Plot]:
        return [self.label_table(scores), self.error_table()]


def _as_tuple(labels: Any) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else tuple(sorted(labels))
