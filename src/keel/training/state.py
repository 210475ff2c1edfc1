"""The progress of a run, and its best evaluation so far.

In: a state and the score of an evaluation. Out: the next state, in which the best evaluation is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from keel.corpus.stream import Cursor

Cursors = dict[str, Cursor]


@dataclass(frozen=True)
class Best:
    """The evaluation with the highest score so far; of equal ones the last."""

    step: int
    score: float
    waited: int = 0  # evaluations since the score has last increased


@dataclass(frozen=True)
class State:
    """All that is needed to resume a run, besides the weights and the optimizer state."""

    step: int = 0
    tokens: int = 0
    elapsed: float = 0.0
    cursors: Cursors = field(default_factory=dict)
    evaluated: int = 0  # step of the last evaluation
    best: Best | None = None

    def after_evaluation(self, score: float | None) -> State:
        """None: evaluations have no score."""
        return replace(self, evaluated=self.step, best=None if score is None else self._best(score))

    def _best(self, score: float) -> Best:
        score = -math.inf if math.isnan(score) else score
        if self.best is None or score > self.best.score:
            return Best(self.step, score)
        if self.evaluated == self.step:  # evaluated once more, at the end of the run
            return self.best
        waited = self.best.waited + 1
        return Best(self.step, score, waited) if score == self.best.score else replace(self.best, waited=waited)
