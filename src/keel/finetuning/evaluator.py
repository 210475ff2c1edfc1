"""Evaluates a model on the development data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keel.interfaces import Task
from keel.values import Evaluation, Window


class Evaluator:
    """Computes the model's answers, tunes the task on them (a threshold), and scores them."""

    def __init__(
        self, task: Task, examples: list[Any], windows: list[Window], outputs: Callable[[], list[np.ndarray]]
    ) -> None:
        self.task, self.examples, self.windows, self.outputs = task, examples, windows, outputs
        self.answers: list[dict[str, Any]] = []
        self.evaluation: Evaluation | None = None

    def figures(self) -> dict[str, float]:
        """The metrics, named as in the log."""
        outputs = self.outputs()
        self.answers = self.task.answer(self.examples, self.windows, outputs)
        tuned = self.task.tune(self.examples, self.answers)
        if tuned is not self.task:
            self.task, self.answers = tuned, tuned.answer(self.examples, self.windows, outputs)
        self.evaluation = self.task.scorer().evaluate(self.examples, self.answers)
        return {f"{self.task.config.kind}.{name}": value for name, value in self.evaluation.metrics.items()}

    @property
    def last(self) -> Evaluation:
        assert self.evaluation is not None, "a run ends with an evaluation"
        return self.evaluation

    @property
    def score(self) -> float:
        """The primary metric of the last evaluation, by which models are compared."""
        return self.last.metrics[self.last.primary]
