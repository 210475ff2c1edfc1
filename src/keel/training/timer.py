"""The clock of a run: its progress, its speed, and the time that is left.

In: the settings, the state that the run starts from, and the seconds of each step, evaluation and save. Out: progress
between 0 and 1, over the steps or over the wall-clock budget; and when to evaluate, on how much.

Notable choices
- A run is evaluated at each tenth of its progress, unless the recipe gives a number of steps: short runs get a curve,
  too, and long ones do not spend their time on it.
- The evaluations before the last take at most EVALUATION_SHARE of the run in total: where all held-out rows would take
  longer, they are on the first rows only. With a budget this is measured; with a number of steps it is a function of
  the recipe, because such a run reads no clock.
"""

from __future__ import annotations

import math
import time

from keel.training.settings import TrainingSettings, seconds
from keel.training.state import State

EVALUATIONS = 10
EVALUATION_SHARE = 0.1  # of the run, for all evaluations but the last
EVALUATION_SPEED = 2.5  # tokens/s of an evaluation, relative to training


class Timer:
    """Measures progress: the fraction of the steps, or of the wall-clock budget."""

    def __init__(self, settings: TrainingSettings, state: State, began: float) -> None:
        """`began`: when the budget's clock started, before this process opened anything."""
        self.budget = seconds(settings.budget) if settings.budget else None
        self.steps = settings.steps
        self.evaluation_tokens = settings.evaluation_tokens
        self.tokens = settings.steps * settings.batch_tokens
        self.began = began - state.elapsed
        self.step_seconds = 0.0
        self.tokens_per_second = 0.0
        self.noted = 0  # steps timed so far
        self.saving_seconds = 1.0
        self.evaluation_seconds: float | None = None  # of an evaluation on all held-out rows, as the last one went
        self.reached = 0.0
        # Opening the corpus counts towards the budget, but must not use up the warm-up.
        self.opening = 0.0 if state.step else self.elapsed()

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def usable(self) -> float:
        """The budget minus the expected time of the final evaluation and save."""
        assert self.budget
        return max(0.2 * self.budget, self.budget - 1.2 * self._evaluation() - 2.0 * self.saving_seconds - 1.0)

    def _evaluation(self) -> float:
        """Expected seconds of a whole evaluation: as the last; before the first, estimated from the training speed.

        The first step is left out of the estimate: one-time initialisation makes it several times as long as others."""
        if self.evaluation_seconds is not None:
            return self.evaluation_seconds
        return self.evaluation_tokens / (EVALUATION_SPEED * self.tokens_per_second) if self.noted > 1 else 0.0

    def progress(self, step: int) -> float:
        if not self.budget:
            return min(1.0, step / self.steps)
        now = (self.elapsed() - self.opening) / max(1e-9, self.usable() - self.opening)
        self.reached = max(self.reached, min(1.0, now))  # does not decrease when the usable time is estimated anew
        return self.reached

    def finished(self, step: int) -> bool:
        if self.budget:
            return step > 0 and self.elapsed() + self.step_seconds >= self.usable()
        return step >= self.steps

    def has_time_to_evaluate(self, step: int, share: float) -> bool:
        """Whether an evaluation now, on a share of the held-out rows, leaves enough time for the final one."""
        if self.budget:
            return self.elapsed() + self.step_seconds + share * self._evaluation() < self.usable()
        return not self.finished(step)

    def tenth(self, step: int) -> int:
        """The number of the run's tenths that are done."""
        return int(EVALUATIONS * self.progress(step)) if self.budget else EVALUATIONS * step // self.steps

    def evaluation_share(self) -> float:
        """The share of the held-out rows that an evaluation before the last may take: 1, 1/2, 1/4, ..., so that most
        evaluations of a run are on the same rows though its speed varies."""
        if not self.budget:
            run, whole = EVALUATION_SPEED * self.tokens, float(self.evaluation_tokens)
        else:
            run, whole = self.usable(), self._evaluation()
        share = EVALUATION_SHARE * run / (EVALUATIONS - 1) / whole if whole else 0.0
        return 0.5 ** math.ceil(-math.log2(share)) if 0 < share < 1 else float(share >= 1)

    def note_evaluation(self, taken: float, share: float) -> None:
        """`share`: of the held-out rows, if there are any."""
        self.evaluation_seconds = taken / (share or 1.0)

    def remaining(self, step: int) -> float:
        return self.usable() - self.elapsed() if self.budget else (self.steps - step) * self.step_seconds

    def note_step(self, taken: float, tokens: int) -> None:
        self.noted += 1
        self.step_seconds = taken if self.noted <= 2 else 0.95 * self.step_seconds + 0.05 * taken
        self.tokens_per_second = tokens / self.step_seconds
