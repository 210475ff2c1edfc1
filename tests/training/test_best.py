"""The best evaluation of a run, and the end of its patience."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import UserError
from keel.recipe import load_task
from keel.training.loop import Run, train
from keel.training.state import State

MakeRun = Callable[..., Run]
scores = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.9]) | st.floats(allow_nan=True), min_size=1, max_size=12)


@given(scores)
def test_the_best_is_the_last_of_the_highest_scores(given: list[float]) -> None:
    state = State()
    for step, score in enumerate(given, 1):
        state = replace(state, step=step).after_evaluation(score)
    finite = [-math.inf if math.isnan(score) else score for score in given]
    assert state.best is not None and state.evaluated == len(given)
    assert state.best.score == max(finite)
    assert state.best.step == len(given) - finite[::-1].index(max(finite))
    assert state.best.waited == len(given) - 1 - finite.index(max(finite)), "equal scores are no progress"


def scripted(make_run: MakeRun, given: list[float], patience: int | None = None) -> tuple[Run, list[State]]:
    """A run with an evaluation after every step, whose scores are given."""
    steps, saved = [0], list[State]()
    run = make_run(
        f"training.steps={len(given)}",
        "training.evaluate_steps=1",
        "training.checkpoint_steps=100",
        patience=patience,
        evaluate=lambda parts: {"accuracy": given[max(1, *steps) - 1]},
        show=lambda line: steps.append(line["step"]),
        score=lambda figures: figures["accuracy"],
        save=saved.append,
    )
    return run, saved


def test_every_new_best_is_saved(make_run: MakeRun) -> None:
    run, saved = scripted(make_run, [0.5, 0.4, 0.7, 0.7, 0.1])
    state, stopped = train(run)
    assert not stopped and state.best is not None and state.best.step == 4
    assert [one.step for one in saved] == [1, 3, 4, 5]
    assert [one.best.step for one in saved if one.best] == [1, 3, 4, 4]


def test_patience_ends_a_run(make_run: MakeRun) -> None:
    run, _ = scripted(make_run, [0.5, 0.6, 0.6, 0.2, 0.9, 0.9], patience=2)
    state, stopped = train(run)
    assert not stopped and state.step == 4 and state.best is not None and state.best.step == 3


def test_an_interrupted_evaluation_is_made_up_for(make_run: MakeRun) -> None:
    """The resumed run evaluates the step it resumes from, so that it finds the same best."""
    run, _ = scripted(make_run, [0.9, 0.1, 0.2])
    state, _ = train(replace(run, state=State(step=1)))  # saved after step 1, before its evaluation ended
    assert state.best is not None and (state.best.step, state.best.score) == (1, 0.9)


def test_patience_needs_a_score() -> None:
    with pytest.raises(UserError, match=r"needs training\.keep_best=true"):
        load_task("classify", ["training.patience=2", "training.keep_best=false"])


def test_pretraining_has_no_best(make_run: MakeRun) -> None:
    assert train(make_run("training.steps=2", "training.evaluate_steps=1"))[0].best is None
