"""The training loop: computes gradients, updates the weights, logs, evaluates and saves, until the last step or the end
of the time budget.

In: a `Run` (learner, optimizer, source of rows, settings, hooks). Out: the run's state after its last step.

Notable choices
- Everything random in a step is a function of (seed, step, micro-batch): a run that resumes from a saved state repeats
  exactly what it would have done. This requires the same number of threads, which the caller restores.
- A step accumulates the gradients of a fixed number of micro-batches in order; the recipe may have several computed in
  parallel (`micro_batches.py`). Losses are divided by the number of answers in the step, not in the micro-batch, so the
  number of micro-batches does not change the training loss.
- A signal interrupts a step before its weight update: the checkpoint is saved at once (with parallel micro-batches, as
  soon as those in progress are done), and the resumed run repeats the step. Only the update is never interrupted.
- Callbacks are called between steps, when the state is complete (`callbacks.py`).
- A step whose loss or gradient is not finite does not update the weights; too many in a row end the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from keel.errors import UserError
from keel.interfaces import Tokenizer
from keel.layers.dropout import seeded_dropout
from keel.learner.learner import Learner, answer_counts
from keel.randomness import Draw, seed_of
from keel.training.callbacks import Callbacks
from keel.training.micro_batches import add_gradients
from keel.training.precision import autocast
from keel.training.schedules import learning_rate
from keel.training.settings import TrainingSettings
from keel.training.state import Cursors, State
from keel.training.stopping import Interrupted, StopRequest
from keel.training.timer import Timer
from keel.values import Batch, Rows, Score

HOPELESS = 50  # steps in a row without a finite loss


@dataclass(kw_only=True)
class Run:
    """Everything that the loop needs."""

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
    evaluate: Callable[[int], dict[str, float]]  # on so many parts of the held-out data, the first ones
    save: Callable[[State], object]
    log: Callable[[dict[str, Any]], None]
    show: Callable[[dict[str, Any]], None]  # each step, for the progress bar
    score: Callable[[dict[str, float]], float] | None = None  # of an evaluation; None: the last model is the result
    patience: int | None = None  # evaluations without a better score, after which the run ends
    callbacks: Callbacks = field(default_factory=Callbacks)
    evaluation_parts: int = 1  # of the held-out data; 0: there are none
    began: float = field(default_factory=time.monotonic)  # when the budget's clock started


def train(run: Run) -> tuple[State, bool]:
    """Trains to the end, or until a stop is requested, and saves the state. Returns it, and whether it was stopped."""
    timer = Timer(run.settings, run.state, run.began)
    means, saver, state = RunningMeans(), Saver(run), run.state
    with StopRequest().listening() as stop:
        evaluations = Evaluations(run, stop, timer)
        if state.evaluated < state.step:  # it may have been interrupted
            state = evaluations.on_the_way(state, timer.progress(state.step))
        while not stop.asked and not run.callbacks.asked and not _finished(run, timer, state):
            progress, began = timer.progress(state.step), time.monotonic()
            rate = learning_rate(run.settings, progress)
            measured = _step(run, stop, state, progress, rate)
            if measured is None:
                break
            means.add(measured)
            timer.note_step(time.monotonic() - began, measured.tokens)
            state = _advanced(state, measured, timer.elapsed())
            speed = round(timer.tokens_per_second, 1)
            entry = {"kind": "train", **_line(state, progress), "learning_rate": rate, "tokens_per_second": speed}
            entry |= means.figures()
            run.show({**entry, "remaining": timer.remaining(state.step)})
            if state.step % run.settings.log_steps == 0:
                run.log(entry)
                means = RunningMeans(means.failures)
            if means.failures >= HOPELESS:
                raise _hopeless(state)
            run.callbacks.after_step(entry)
            if run.callbacks.asked:
                break
            state = evaluations.on_the_way(state, progress)
            is_best = state.best is not None and state.best.step == state.step
            if (saver.due(state) or is_best) and not timer.finished(state.step):  # the last save follows the evaluation
                timer.saving_seconds = saver.save(state)
        stopped = run.callbacks.error is not None or not (run.callbacks.ended or _finished(run, timer, state))
        if not stopped:
            complete = timer.finished(state.step)  # else ended by a callback or by patience, maybe in an evaluation
            if complete or evaluations.last != state.step:
                evaluated = evaluations.at_the_end(state, 1.0 if complete else timer.progress(state.step))
                stopped, state = evaluated is None, evaluated or state
            state = replace(state, elapsed=timer.elapsed())
        saver.save(state, ended=not stopped)
    run.callbacks.raise_error()
    return state, stopped


def _step(run: Run, stop: StopRequest, state: State, progress: float, rate: float) -> Measured | None:
    """One step with its weight update; None: interrupted before the update."""
    if run.learner.updates_itself:
        return _self_update(run, state, progress, rate)
    try:
        with stop.interruptible():
            measured = _gradients(run, state, progress)
    except Interrupted:
        return None
    if measured.finite:
        _update(run, rate)
    run.optimizer.zero_grad(set_to_none=True)
    return measured


def _finished(run: Run, timer: Timer, state: State) -> bool:
    """Whether the last step is done, or the score has not increased for as long as the recipe waits."""
    patience, best = run.patience, state.best
    return timer.finished(state.step) or (patience is not None and best is not None and best.waited >= patience)


def _advanced(state: State, measured: Measured, elapsed: float) -> State:
    tokens = state.tokens + measured.tokens
    return replace(state, step=state.step + 1, tokens=tokens, elapsed=elapsed, cursors=measured.cursors)


class Evaluations:
    """Evaluates on the way, when and on as much as the recipe or the timer says, and at the end on everything."""

    def __init__(self, run: Run, stop: StopRequest, timer: Timer) -> None:
        self.run, self.stop, self.timer = run, stop, timer
        self.tenth = timer.tenth(run.state.evaluated)  # of the run, at the last evaluation
        self.share = 1.0  # of the held-out data, for evaluations on the way; does not increase
        self.last: int | None = None  # the step of the last evaluation by this process on everything

    def on_the_way(self, state: State, progress: float) -> State:
        """Evaluates if it is due. The state stays as it is if there is no time left for it, or if it is interrupted."""
        if not self._due(state):
            return state
        parts = self.run.evaluation_parts
        if not self.run.settings.evaluate_steps:
            self.share = min(self.share, self.timer.evaluation_share())
            parts = max(1, int(parts * self.share))
        in_time = self.timer.has_time_to_evaluate(state.step, parts / self.run.evaluation_parts)
        return (in_time and self._evaluate(state, progress, parts)) or state

    def at_the_end(self, state: State, progress: float) -> State | None:
        """None: interrupted. Evaluating a large model takes too long to wait for."""
        return self._evaluate(state, progress, self.run.evaluation_parts)

    def _due(self, state: State) -> bool:
        if not self.run.evaluation_parts or not state.step:
            return False
        often = self.run.settings.evaluate_steps
        return state.step % often == 0 if often else self.timer.tenth(state.step) > self.tenth

    def _evaluate(self, state: State, progress: float, parts: int) -> State | None:
        began = time.monotonic()
        try:
            with self.stop.interruptible():
                figures = self.run.evaluate(parts)
        except Interrupted:
            return None
        self.timer.note_evaluation(time.monotonic() - began, parts / max(1, self.run.evaluation_parts))
        self.tenth = self.timer.tenth(state.step)
        self.last = state.step if parts == self.run.evaluation_parts else None
        entry = {"kind": "evaluation", **_line(state, progress), **figures}
        self.run.log(entry)
        self.run.callbacks.after_evaluation(entry)
        return state.after_evaluation(self.run.score(figures) if self.run.score else None)


class Saver:
    """Saves every `checkpoint_steps` or `checkpoint_minutes`, and never the same step twice."""

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
        """Returns the seconds it took. `ended`: saves again, because the final evaluation may have tuned the task."""
        began = time.monotonic()
        if state.step != self.step or not state.step or ended:
            self.run.save(state)
        self.step, self.at = state.step, time.monotonic()
        return self.at - began


def _line(state: State, progress: float) -> dict[str, Any]:
    """The keys that every log line begins with."""
    elapsed, progress = round(state.elapsed, 3), round(progress, 6)
    return {"step": state.step, "elapsed": elapsed, "progress": progress, "tokens": state.tokens}


def _hopeless(state: State) -> UserError:
    return UserError(
        f"the loss has not been finite for {HOPELESS} steps (now step {state.step}); the weights were not updated. "
        "Lower training.learning_rate, or check the weights given with --init"
    )


@dataclass(frozen=True)
class Measured:
    """The results of one step: sums of (loss, correct, count) by objective."""

    scores: dict[str, tuple[float, float, int]]
    norm: float
    tokens: int
    padding: float
    cursors: Cursors

    @property
    def finite(self) -> bool:
        return math.isfinite(self.norm) and all(math.isfinite(loss) for loss, _, _ in self.scores.values())


def _gradients(run: Run, state: State, progress: float) -> Measured:
    """Forward and backward pass over the step's micro-batches; changes nothing but gradients."""
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
    """The share of padding in the attention kernels of this device."""
    if device.type == "cpu" or not lengths:
        return 0.0
    return 1.0 - sum(lengths) / (len(lengths) * max(lengths))


def _self_update(run: Run, state: State, progress: float, rate: float) -> Measured:
    """A step of objectives that update the weights themselves. Not interruptible: half a step cannot be undone."""
    parts, cursors = run.source(progress, state.cursors)
    sums: dict[str, tuple[float, float, int]] = {}
    for rows in parts:
        scores = run.learner.update(rows, rate)
        add_scores(sums, {n: (float(s.loss), float(_right(s)), s.count) for n, s in scores.items()})
    return Measured(sums, 0.0, sum(len(rows.ids) for rows in parts), 0.0, cursors)


def _right(score: Score) -> Tensor:
    """The number of correct answers; NaN where answers are not simply right or wrong."""
    return score.loss.new_tensor(math.nan) if score.correct is None else score.correct.to(score.loss.dtype)


def weighted_sum(scores: dict[str, Score], counts: dict[str, int]) -> Tensor:
    """The training loss: the weighted sum of the objectives' mean losses over all answers of a step."""
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
    if not means:  # no step was finite: report no loss instead of 0
        return means
    return {"loss": sum(v for k, v in means.items() if k.endswith(".loss")), **means}


@torch.no_grad()
def evaluate(learner: Learner, batches: list[Batch]) -> dict[str, float]:
    """The same metrics as in training, on fixed batches, without dropout and always in fp32."""
    learner.eval()
    sums: dict[str, tuple[float, float, int]] = {}
    for batch in batches:
        scores = learner(batch)
        add_scores(sums, {n: (float(s.loss), float(_right(s)), s.count) for n, s in scores.items()})
    return summarise(sums)
