"""Scores predicted tags. In: examples and answers of the task tag. Out: metrics, and tables for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import nan
from typing import Any, Protocol

from keel.metrics.entities import EntityCounts, EntitySpan
from keel.report_tables import Plot, Table
from keel.tasks._scoring import WORST, Variety, Worst
from keel.values import Evaluation, Scorer


class Tagged(Protocol):
    """The parts of an example that are scored."""

    @property
    def text(self) -> str: ...
    @property
    def tags(self) -> list[str] | None: ...
    @property
    def entities(self) -> list[tuple[int, int, str]] | None: ...


class TagScorer(Scorer):
    """Scores words; `to_scheme` converts gold tags to the scheme of the predictions."""

    def __init__(self, to_scheme: Callable[[list[str]], list[str]]) -> None:
        self.to_scheme = to_scheme
        self.variety = Variety()
        self.words = self.right = 0
        self.errors, self.gold_counts = Counter[tuple[str, str]](), Counter[str]()

    def gold(self, example: Tagged) -> Any:
        return example.tags

    def update(self, examples: Sequence[Tagged], answers: Sequence[dict[str, Any]]) -> None:
        for example, answer in zip(examples, answers, strict=True):
            given, predicted = example.tags or [], answer["tags"]
            self.variety.update(given, predicted)
            self.words += len(predicted)
            self.gold_counts.update(given)
            self.right += sum(a == b for a, b in zip(self.to_scheme(given), predicted, strict=True))
            self.errors.update(pair for pair in zip(given, predicted, strict=True) if pair[0] != pair[1])

    @property
    def accuracy(self) -> float:
        return self.right / self.words if self.words else nan

    def compute(self) -> Evaluation:
        baseline = max(self.gold_counts.values(), default=0) / max(1, self.words)
        return Evaluation({"accuracy": self.accuracy}, "accuracy", self.variety.constant, baseline, self._details)

    def _details(self) -> list[Table | Plot]:
        rows = [(gold, predicted, count) for (gold, predicted), count in self.errors.most_common(WORST)]
        return [Table("Most frequent errors", ("gold", "predicted", "words"), rows)]


class EntityScorer(TagScorer):
    """Scores entities, as character spans."""

    def __init__(self, to_scheme: Callable[[list[str]], list[str]]) -> None:
        super().__init__(to_scheme)
        self.entities, self.worst = EntityCounts(), Worst()

    def gold(self, example: Tagged) -> Any:
        return example.entities

    def update(self, examples: Sequence[Tagged], answers: Sequence[dict[str, Any]]) -> None:
        super().update(examples, answers)
        errors = []
        for example, answer in zip(examples, answers, strict=True):
            gold = {(label, start, stop) for start, stop, label in example.entities or ()}
            guessed = {(found["label"], found["start"], found["end"]) for found in answer["entities"]}
            self.entities.add(gold, guessed)
            if gold != guessed:
                missed, wrong = (_listed(example.text, some) for some in (gold - guessed, guessed - gold))
                errors.append((-len(gold ^ guessed), (example.text, missed, wrong)))
        self.worst.update(errors)

    def compute(self) -> Evaluation:
        scores = self.entities.scores()
        overall, types = scores.overall, {kind: f.f1 for kind, f in scores.types.items()}
        figures = {"f1": overall.f1, "precision": overall.precision, "recall": overall.recall}
        figures["word_accuracy"] = self.accuracy
        return Evaluation(figures, "f1", self.variety.constant, details=self._details, f1_by_label=types)

    def _details(self) -> list[Table | Plot]:
        types = self.entities.scores().types.items()
        table = [(kind, f.precision, f.recall, f.f1, f.support) for kind, f in types]
        return [
            Table("Entity types", ("type", "precision", "recall", "F1", "entities"), table),
            Table("Worst errors", ("text", "missed", "wrong"), self.worst.rows),
        ]


def _listed(text: str, entities: set[EntitySpan]) -> str:
    return "; ".join(f"{text[a:b]} ({kind})" for kind, a, b in sorted(entities, key=lambda e: e[1]))
