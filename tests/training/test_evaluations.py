"""Evaluations follow the plan: a curve for every run, at a bounded price, and at the same steps after any resume."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from keel.training.loop import Run, train
from keel.training.optimizer import optimizer_tensors, restore_optimizer
from keel.training.settings import FinetuneSettings
from keel.training.state import State
from keel.training.timer import EVALUATION_SHARE, EVALUATIONS

MakeRun = Callable[..., Run]
Entry = dict[str, Any]
PARTS = 16


def evaluations(log: list[Entry]) -> list[int]:
    return [entry["step"] for entry in log if entry["kind"] == "evaluation"]


@pytest.mark.parametrize("steps", [1, 2, 7, 10, 11, 23, 40])
def test_every_run_has_a_curve(make_run: MakeRun, steps: int) -> None:
    log = list[Entry]()
    train(make_run(f"training.steps={steps}", log=log.append))
    points = evaluations(log)
    assert min(8, steps) <= len(points) <= EVALUATIONS and points[-1] == steps
    assert points == sorted(set(points))
    gaps = [after - before for before, after in zip([0, *points], points, strict=False)]
    assert max(gaps) <= -(-steps // EVALUATIONS) + 1, "no long gap"


def test_a_number_of_steps_in_the_recipe_means_steps(make_run: MakeRun) -> None:
    log, parts = list[Entry](), list[int]()
    run = make_run("training.evaluate_steps=3", log=log.append, evaluation_parts=PARTS)
    train(replace(run, evaluate=lambda count: parts.append(count) or {}))
    assert evaluations(log) == [3, 6, 8] and parts == [PARTS] * 3


def test_a_resumed_run_evaluates_at_the_same_steps_to_the_same_bits(make_run: MakeRun) -> None:
    """From the state after any step, and again if a signal came in the middle of an evaluation."""
    log, states, tensors = list[Entry](), list[State](), dict[int, Any]()
    whole = make_run("training.steps=23", "training.checkpoint_steps=1", log=log.append)

    def save(state: State) -> None:
        states.append(state)
        moments = optimizer_tensors(whole.optimizer, whole.learner)
        tensors[state.step] = [
            {name: tensor.clone() for name, tensor in some.items()} for some in (whole.learner.state_dict(), moments)
        ]

    train(replace(whole, save=save))
    points = evaluations(log)
    for state in states[::4]:
        again = list[Entry]()
        run = make_run("training.steps=23", state=state, log=again.append)
        run.learner.load_state_dict(tensors[state.step][0])
        restore_optimizer(run.optimizer, run.learner, tensors[state.step][1])
        train(run)
        assert evaluations(again) == [step for step in points if step > state.step]
        assert all(torch.equal(t, tensors[23][0][name]) for name, t in run.learner.state_dict().items())

    rounds = list[int]()

    def interrupted(parts: int) -> dict[str, float]:
        rounds.append(parts)
        if len(rounds) == 3:
            signal.raise_signal(signal.SIGINT)
        return {}

    first, second = list[Entry](), list[Entry]()
    end, stopped = train(make_run("training.steps=23", evaluate=interrupted, log=first.append))
    assert stopped and end.step == points[2] and end.evaluated == points[1]
    train(make_run("training.steps=23", state=end, log=second.append))
    assert evaluations(first) + evaluations(second) == points


def test_a_longer_plan_goes_on_with_its_own_tenths(make_run: MakeRun) -> None:
    log = list[Entry]()
    train(make_run("training.steps=40", state=State(step=20, evaluated=20), log=log.append))
    assert evaluations(log) == [24, 28, 32, 36, 40]


@pytest.mark.parametrize(("steps", "tokens", "parts"), [(8, 65_536, 1), (40, 2048, 2), (40, 512, 8), (80, 512, 16)])
def test_evaluations_of_a_run_planned_in_steps_are_bounded_by_the_recipe(
    make_run: MakeRun, steps: int, tokens: int, parts: int
) -> None:
    """Steps have 256 tokens; a token costs an evaluation 1 / 2.5 of what it costs training. The last is on all rows."""
    asked = list[int]()
    run = make_run(f"training.steps={steps}", f"training.evaluation_tokens={tokens}", evaluation_parts=PARTS)
    train(replace(run, evaluate=lambda count: asked.append(count) or {}))
    assert asked == [parts] * (len(asked) - 1) + [PARTS]
    share = (len(asked) - 1) * parts / PARTS * tokens / 2.5 / (steps * 256)
    assert parts == 1 or share <= EVALUATION_SHARE


class Clock:
    """Time that passes only where it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float, result: Any) -> Any:
        self.now += seconds
        return result


@pytest.mark.parametrize(
    ("budget", "step", "part"), [(60, 0.2, 0.0), (60, 0.2, 0.05), (60, 0.2, 0.3), (60, 1.0, 0.1), (600, 3.0, 2.0)]
)
def test_evaluations_of_a_run_with_a_budget_are_bounded_by_the_clock(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, budget: int, step: float, part: float
) -> None:
    """Whatever a step and a part of the held-out rows take; the last evaluation is on all parts, and in time."""
    clock, log, asked = Clock(), list[Entry](), list[int]()
    monkeypatch.setattr(time, "monotonic", clock)
    run = make_run(
        f"training.budget={budget}s", "training.evaluation_tokens=2048", log=log.append, evaluation_parts=PARTS
    )
    source = run.source
    run.began, run.source = clock.now, lambda progress, cursors: clock.spend(step, source(progress, cursors))
    run.evaluate = lambda parts: asked.append(parts) or clock.spend(parts * part, {})  # type: ignore[func-returns-value]
    began = clock.now
    train(run)
    assert clock.now - began <= budget + step
    assert asked[-1] == PARTS and len(asked) >= 8
    assert asked[:-1] == sorted(asked[:-1], reverse=True), "mostly the same rows, so that points can be compared"
    on_the_way = part * sum(asked[1:-1])  # the first is planned with an estimate
    assert on_the_way <= EVALUATION_SHARE * budget or set(asked[1:-1]) == {1}
    progress = [entry["progress"] for entry in log if entry["kind"] == "evaluation"]
    assert progress[-1] == 1.0 and max(b - a for a, b in zip([0.0, *progress], progress, strict=False)) < 0.25


def test_without_held_out_rows_only_the_end_is_evaluated(make_run: MakeRun) -> None:
    log = list[Entry]()
    train(make_run(log=log.append, evaluation_parts=0))
    assert evaluations(log) == [8]


def test_fine_tuning_evaluates_each_epoch() -> None:
    settings = FinetuneSettings(batch_size=4, epochs=3)
    assert settings.for_rows(10).evaluate_steps == 3 and settings.for_rows(10).steps == 9
    assert FinetuneSettings(evaluate_steps=5, epochs=3).for_rows(10).evaluate_steps == 5
    assert settings.for_rows(10).for_rows(10).evaluate_steps == 3, "as a resumed run reads it from its recipe"
