"""The one loop: takes rows, computes gradients, updates, logs, evaluates, saves; until steps or time are used up.

In: a `Run` (learner, optimizer, source of rows, settings, hooks). Out: the run's state after its last step.

Notable choices
- Everything random in a step is a function of (seed, step, micro-batch): a run that resumes from a saved state repeats
  exactly what it would have done. Thread count is part of that promise and is kept by the caller.
- A step is computed in a fixed number of micro-batches whose gradients are summed in order, several of them at once
  where the recipe says so (`micro_batches.py`); losses are divided by the step's answers, not the micro-batch's, so
  their number does not change what is minimised.
- A signal interrupts a step that has not yet touched the weights: saving starts at once (where micro-batches run in
  parallel, as soon as those at work are done), and the step is repeated by the resumed run. Only the update itself is
  never interrupted.
- A loss or gradient that is not finite never updates the weights; too many in a row end the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from keel.corpus.stream import Cursor
from keel.errors import UserError
from keel.interfaces import Tokenizer
from keel.layers.dropout import seeded_dropout
from keel.learner.learner import Learner, answer_counts
from keel.randomness import Draw, seed_of
from keel.training.micro_batches import add_gradients
from keel.training.precision import autocast
from keel.training.schedules import learning_rate
from keel.training.settings import TrainingSettings, seconds
from keel.training.stopping import Interrupted, StopRequest
from keel.values import Batch, Rows, Score

HOPELESS = 50  # steps in a row without a finite loss
Cursors = dict[str, Cursor]


@dataclass(frozen=True)
class State:
    """Where a run is. With the weights and the optimizer's tensors, all it takes to go on."""

    step: int = 0
    tokens: int = 0
    elapsed: float = 0.0
    cursors: Cursors = field(default_factory=dict)


@dataclass(kw_only=True)
class Run:
    """What the loop needs of a run."""

    learner: Learner
    optimizer: torch.optim.Optimizer
    tokenizer: Tokenizer
    source: Callable[
        [float, Cursors], tuple[list[Rows], Cursors]
    ]  # progress, cursors -> the micro-batches' rows, cursors
    settings: TrainingSettings
    state: State
    device: torch.device
    precision: str
    evaluate: Callable[[], dict[str, float]]
    save: Callable[[State], object]
    log: Callable[[dict[str, Any]], None]
    show: Callable[[dict[str, Any]], None]  # each step, for the progress bar
    began: float = field(default_factory=time.monotonic)  # when the budget's clock started


class Timer:
    """The run's clock and its plan: progress through steps, or through the wall-clock budget."""

    def __init__(self, run: Run) -> None:
        self.budget = seconds(run.settings.budget) if run.settings.budget else None
        self.steps = run.settings.steps
        self.evaluation_tokens = run.settings.evaluation_tokens
        self.began = run.began - run.state.elapsed
        self.step_seconds = 0.0
        self.tokens_per_second = 0.0
        self.noted = 0  # steps
        self.saving_seconds = 1.0
        self.evaluation_seconds: float | None = None  # of the last one
        self.reached = 0.0
        # Opening the corpus counts in the budget, but must not use up the warm-up.
        self.opening = 0.0 if run.state.step else self.elapsed()

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def usable(self) -> float:
        """The budget less what the last evaluation and save will take."""
        assert self.budget
        return max(0.2 * self.budget, self.budget - 1.2 * self._evaluation() - 2.0 * self.saving_seconds - 1.0)

    def _evaluation(self) -> float:
        """As long as the one before; until there is one, it is taken for a forward pass, a third of a step's cost.

        The first step is several times as long as others, for it wakes up everything: it tells nothing."""
        if self.evaluation_seconds is not None:
            return self.evaluation_seconds
        return self.evaluation_tokens / (2.5 * self.tokens_per_second) if self.noted > 1 else 0.0

    def progress(self, step: int) -> float:
        if not self.budget:
            return min(1.0, step / self.steps)
        now = (self.elapsed() - self.opening) / max(1e-9, self.usable() - self.opening)
        self.reached = max(self.reached, min(1.0, now))  # more time than was thought does not turn it back
        return self.reached

    def finished(self, step: int) -> bool:
        if self.budget:
            return step > 0 and self.elapsed() + self.step_seconds >= self.usable()
        return step >= self.steps

    def has_time_to_evaluate(self, step: int) -> bool:
        """Also for the last one, which has its time kept for it."""
        if self.budget:
            return self.elapsed() + self.step_seconds + self._evaluation() < self.usable()
        return not self.finished(step)

    def remaining(self, step: int) -> float:
        return self.usable() - self.elapsed() if self.budget else (self.steps - step) * self.step_seconds

    def note_step(self, taken: float, tokens: int) -> None:
        self.noted += 1
        self.step_seconds = taken if self.noted <= 2 else 0.95 * self.step_seconds + 0.05 * taken
        self.tokens_per_second = tokens / self.step_seconds


def train(run: Run) -> tuple[State, bool]:
    """Runs to the end, or until asked to stop; either way the state is saved. True: it was asked to stop."""
    timer, means, saver, state = Timer(run), RunningMeans(), Saver(run), run.state
    with StopRequest().listening() as stop:
        while not stop.asked and not timer.finished(state.step):
            progress, began = timer.progress(state.step), time.monotonic()
            rate = learning_rate(run.settings, progress)
            if run.learner.updates_itself:
                measured = _self_update(run, state, progress, rate)
            else:
                try:
                    with stop.interruptible():
                        measured = _gradients(run, state, progress)
                except Interrupted:
                    break
                if measured.finite:
                    _update(run, rate)
                run.optimizer.zero_grad(set_to_none=True)
            means.add(measured)
            timer.note_step(time.monotonic() - began, measured.tokens)
            state = State(state.step + 1, state.tokens + measured.tokens, timer.elapsed(), measured.cursors)
            line = _line(state, progress) | {
                "learning_rate": rate,
                "tokens_per_second": round(timer.tokens_per_second, 1),
            }
            run.show({**line, **means.figures(), "remaining": timer.remaining(state.step)})
            if state.step % run.settings.log_steps == 0:
                run.log({"kind": "train", **line, **means.figures()})
                means = RunningMeans(means.failures)
            if means.failures >= HOPELESS:
                raise _hopeless(state)
            if state.step % run.settings.evaluate_steps == 0 and timer.has_time_to_evaluate(state.step):
                before = timer.elapsed()
                _evaluate(run, stop, state, progress)
                timer.evaluation_seconds = timer.elapsed() - before
            if saver.due(state) and not timer.finished(state.step):  # the last save comes after the last evaluation
                timer.saving_seconds = saver.save(state)
        stopped = not timer.finished(state.step)
        if not stopped:
            stopped = not _evaluate(run, stop, state, 1.0)
            state = replace(state, elapsed=timer.elapsed())
        saver.save(state, ended=not stopped)
    return state, stopped


def _evaluate(run: Run, stop: StopRequest, state: State, progress: float) -> bool:
    """Logs the held-out figures. False: interrupted, for the evaluation of a large model outlasts any patience."""
    try:
        with stop.interruptible():
            figures = run.evaluate()
    except Interrupted:
        return False
    run.log({"kind": "evaluation", **_line(state, progress), **figures})
    return True


class Saver:
    """Saves every so many steps or minutes, and never the same step twice."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.step = run.state.step
        self.at = time.monotonic()

    def due(self, state: State) -> bool:
        settings = self.run.settings
        return (
            state.step % settings.checkpoint_steps == 0
            or time.monotonic() - self.at >= 60 * settings.checkpoint_minutes
        )

    def save(self, state: State, ended: bool = False) -> float:
        """Returns the seconds it took. `ended`: the last evaluation may have settled something more to be saved."""
        began = time.monotonic()
        if state.step != self.step or not state.step or ended:
            self.run.save(state)
        self.step, self.at = state.step, time.monotonic()
        return self.at - began


def _line(state: State, progress: float) -> dict[str, Any]:
    """What every log line begins with."""
    elapsed, progress = round(state.elapsed, 3), round(progress, 6)
    return {"step": state.step, "elapsed": elapsed, "progress": progress, "tokens": state.tokens}


def _hopeless(state: State) -> UserError:
    return UserError(
        f"the loss has not been finite for {HOPELESS} steps (now step {state.step}); the weights were not touched. "
        "Lower training.learning_rate, or look for damaged weights given with --init"
    )


@dataclass(frozen=True)
class Measured:
    """What one step found: (loss, correct, count) by objective, as sums."""

    scores: dict[str, tuple[float, float, int]]
    norm: float
    tokens: int
    padding: float
    cursors: Cursors

    @property
    def finite(self) -> bool:
        return math.isfinite(self.norm) and all(math.isfinite(loss) for loss, _, _ in self.scores.values())


def _gradients(run: Run, state: State, progress: float) -> Measured:
    """Forward and backward over the step's micro-batches; touches nothing but gradients."""
    run.optimizer.zero_grad(set_to_none=True)
    parts, cursors = run.source(progress, state.cursors)
    batches = [run.learner.prepare(rows, run.tokenizer, run.device) for rows in parts]
    counts: dict[str, int] = {}
    for batch in batches:
        for name, count in answer_counts(batch).items():
            counts[name] = counts.get(name, 0) + count
    totals = {name: torch.zeros(2, device=run.device) for name in counts}
    run.learner.train()
    at_once = run.settings.parallel_micro_batches

    def loss_of(number: int) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's loss, and the sums of its scores."""
        seed = seed_of(run.settings.seed, Draw.DROPOUT, state.step, number)
        with seeded_dropout(seed, run.device), autocast(run.device, run.precision, at_once):
            scores = run.learner(batches[number])
        sums = {name: torch.stack([score.loss.detach(), _right(score)]) for name, score in scores.items()}
        return weighted_sum(scores, counts), sums

    for reported in add_gradients(run.learner, loss_of, len(batches), at_once, run.device):
        for name, sums in reported.items():
            totals[name] += sums
    run.learner.add_penalties()
    norm = torch.nn.utils.clip_grad_norm_(run.learner.parameters(), run.settings.max_grad_norm)
    return Measured(
        {name: (*total.tolist(), counts[name]) for name, total in totals.items()},
        float(norm),
        sum(len(batch.ids) for batch in batches),
        sum(_padding_share(batch.lengths, run.device) for batch in batches) / len(batches),
        cursors,
    )


def _padding_share(lengths: tuple[int, ...], device: torch.device) -> float:
    """How much of the attention's work is padding on this device."""
    if device.type == "cpu" or not lengths:
        return 0.0
    return 1.0 - sum(lengths) / (len(lengths) * max(lengths))


def _self_update(run: Run, state: State, progress: float, rate: float) -> Measured:
    """A step of objectives that update the weights themselves; half a step could not be undone."""
    parts, cursors = run.source(progress, state.cursors)
    sums: dict[str, tuple[float, float, int]] = {}
    for rows in parts:
        scores = run.learner.update(rows, rate)
        add_scores(sums, {n: (float(s.loss), float(_right(s)), s.count) for n, s in scores.items()})
    return Measured(sums, 0.0, sum(len(rows.ids) for rows in parts), 0.0, cursors)


def _right(score: Score) -> Tensor:
    """How many answers were right; NaN where there is no right and wrong."""
    return score.loss.new_tensor(math.nan) if score.correct is None else score.correct.to(score.loss.dtype)


def weighted_sum(scores: dict[str, Score], counts: dict[str, int]) -> Tensor:
    """What training minimises: the weighted sum of the scores' means over all answers of a step."""
    terms = [score.loss * (score.weight / max(1, counts[name])) for name, score in scores.items()]
    return torch.stack(terms).sum()


def _update(run: Run, rate: float) -> None:
    for group in run.optimizer.param_groups:
        group["lr"] = rate * group["scale"]
    run.optimizer.step()


class RunningMeans:
    """Means over the steps since the last log line; `failures` counts steps in a row that were not finite."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.sums: dict[str, tuple[float, float, int]] = {}
        self.norm = self.padding = 0.0
        self.steps = self.skipped = 0

    def add(self, step: Measured) -> None:
        self.steps += 1
        self.padding += step.padding
        if not step.finite:
            self.skipped += 1
            self.failures += 1
            return
        self.failures = 0
        self.norm += step.norm
        add_scores(self.sums, step.scores)

    def figures(self) -> dict[str, float]:
        means = summarise(self.sums)
        means["gradient_norm"] = self.norm / max(1, self.steps - self.skipped)
        means["padding"] = self.padding / max(1, self.steps)
        return means | ({"skipped": self.skipped} if self.skipped else {})


def add_scores(sums: dict[str, tuple[float, float, int]], more: dict[str, tuple[float, float, int]]) -> None:
    for name, (loss, correct, count) in more.items():
        before = sums.get(name, (0.0, 0.0, 0))
        sums[name] = (before[0] + loss, before[1] + correct, before[2] + count)


def summarise(sums: dict[str, tuple[float, float, int]]) -> dict[str, float]:
    """Loss and accuracy by objective, and the plain sum of the losses."""
    means = {}
    for name, (loss, correct, count) in sums.items():
        means[f"{name}.loss"] = loss / max(1, count)
        if not math.isnan(correct):
            means[f"{name}.accuracy"] = correct / max(1, count)
    if not means:  # no step was finite: no loss is not a loss of 0
        return means
    return {"loss": sum(v for k, v in means.items() if k.endswith(".loss")), **means}


@torch.no_grad()
def evaluate(learner: Learner, batches: list[Batch]) -> dict[str, float]:
    """The same figures as in training, on fixed batches, without dropout and always in fp32."""
    learner.eval()
    sums: dict[str, tuple[float, float, int]] = {}
    for batch in batches:
        scores = learner(batch)
        add_scores(sums, {n: (float(s.loss), float(_right(s)), s.count) for n, s in scores.items()})
    return summarise(sums)
