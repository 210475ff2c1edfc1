"""The loop: values that are not finite never reach the weights, and a run can be interrupted and resumed anywhere."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from keel.errors import UserError
from keel.training import loop
from keel.training.loop import Run, train
from keel.training.optimizer import optimizer_tensors, restore_optimizer
from keel.training.state import State
from keel.training.timer import Timer
from keel.values import Rows

MakeRun = Callable[..., Run]


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in run.learner.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_interrupted_and_resumed_run_equals_the_whole_run(make_run: MakeRun, optimizer: str) -> None:
    """Stopping after any step and resuming with fresh objects gives the same bits."""
    by = f"training.optimizer={optimizer}"
    whole = make_run(by)
    end, stopped = train(whole)
    assert end.step == 8 and not stopped
    assert not equal(weights(whole), weights(make_run(by)))
    first = make_run(by)
    saved: list[Any] = []

    def save(state: State) -> None:
        if state.step == 3:
            moments = optimizer_tensors(first.optimizer, first.learner)
            saved.append((state, weights(first), {name: tensor.clone() for name, tensor in moments.items()}))

    train(replace(first, save=save, settings=first.settings.model_copy(update={"checkpoint_steps": 3})))
    state, tensors, moments = saved[0]
    second = make_run(by, state=state)
    second.learner.load_state_dict(tensors)
    restore_optimizer(second.optimizer, second.learner, moments)
    train(second)
    assert equal(weights(second), weights(whole)) and equal(weights(first), weights(whole))
    mine, theirs = (optimizer_tensors(r.optimizer, r.learner) for r in (second, whole))
    assert equal(mine, theirs)


def poison(run: Run, when: Callable[[int], bool], value: float) -> list[int]:
    """Makes the masked_lm loss `value` in the steps that `when` names; returns the steps that were poisoned."""
    calls, hit = [0], []

    def hook(module: Any, inputs: Any, scores: dict[str, Any]) -> dict[str, Any]:
        step = calls[0]
        calls[0] += 1
        if when(step):
            hit.append(step)
            score = scores["masked_lm"]
            return {**scores, "masked_lm": replace(score, loss=score.loss * value)}
        return scores

    run.learner.register_forward_hook(hook)
    return hit


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_loss_that_is_not_finite_never_updates_the_weights(make_run: MakeRun, value: float) -> None:
    run = make_run("training.steps=6", "training.warmup=0")
    hit = poison(run, lambda step: step in (2, 3), value)
    seen: list[dict[str, torch.Tensor]] = [weights(run)]
    optimizer_seen: list[dict[str, torch.Tensor]] = []

    def show(line: dict[str, Any]) -> None:
        seen.append(weights(run))
        state = optimizer_tensors(run.optimizer, run.learner)
        optimizer_seen.append({name: tensor.clone() for name, tensor in state.items()})

    end, _ = train(replace(run, show=show))
    assert hit == [2, 3] and end.step == 6
    changed = [not equal(before, after) for before, after in pairwise(seen)]
    assert changed == [True, True, False, False, True, True]
    assert equal(optimizer_seen[1], optimizer_seen[3]), "moments and step count are unchanged too"
    assert all(torch.isfinite(tensor).all() for tensor in seen[-1].values())


def test_a_skipped_step_is_logged_as_such_and_not_as_a_loss_of_zero(make_run: MakeRun) -> None:
    run = make_run("training.steps=4")
    poison(run, lambda step: step in (1, 2), float("nan"))
    lines: list[dict[str, Any]] = []
    train(replace(run, log=lines.append))
    skipped = [line for line in lines if line["kind"] == "train" and line.get("skipped")]
    assert [line["step"] for line in skipped] == [2, 3]
    assert all(line.get("loss") is None for line in skipped)


def test_a_gradient_that_is_not_finite_never_updates_the_weights(make_run: MakeRun) -> None:
    """The loss may be finite while its gradient is not."""
    run = make_run("training.steps=3", "training.warmup=0")
    parameter = run.learner.backbone.token_embeddings()
    calls: list[int] = []

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return gradient * float("nan") if len(calls) == 1 else gradient

    parameter.register_hook(spoil)
    seen = [weights(run)]
    train(replace(run, show=lambda line: seen.append(weights(run))))
    assert equal(seen[0], seen[1]) and not equal(seen[1], seen[2])


def test_a_run_without_a_finite_loss_ends_and_leaves_the_weights(make_run: MakeRun) -> None:
    run = make_run("training.steps=200", "training.warmup=0", "training.log_steps=7")
    poison(run, lambda step: step >= 1, float("nan"))
    after_first: list[dict[str, torch.Tensor]] = []
    saved: list[int] = []

    def show(line: dict[str, Any]) -> None:
        if line["step"] == 1:
            after_first.append(weights(run))

    with pytest.raises(UserError, match=f"{loop.HOPELESS} steps"):
        train(replace(run, show=show, save=lambda state: saved.append(state.step)))
    assert equal(weights(run), after_first[0])


def test_a_signal_interrupts_a_step_and_the_step_is_repeated(make_run: MakeRun) -> None:
    """The signal comes as rows are fetched in step 4: the state after step 3 is saved, and resuming is exact."""
    whole = make_run()
    train(whole)
    run = make_run()
    source, steps = run.source, [0]

    def interrupted(progress: float, cursors: Any) -> tuple[list[Rows], Any]:
        steps[0] += 1
        if steps[0] == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return source(progress, cursors)

    saved: list[State] = []
    before = signal.getsignal(signal.SIGTERM)
    end, stopped = train(replace(run, source=interrupted, save=saved.append))
    assert stopped and end.step == 3 and saved == [end]
    assert signal.getsignal(signal.SIGTERM) is before, "the previous handler is restored"
    train(replace(run, state=end))
    assert equal(weights(run), weights(whole))


def test_a_signal_before_the_first_step_saves_a_state_to_resume(make_run: MakeRun) -> None:
    run = make_run()
    saved: list[State] = []

    def source(progress: float, cursors: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was ignored")

    end, stopped = train(replace(run, source=source, save=saved.append))
    assert stopped and end.step == 0 and [state.step for state in saved] == [0]


def test_a_signal_interrupts_an_evaluation(make_run: MakeRun) -> None:
    """A held-out evaluation of a large model takes minutes on a processor; a stop must take under ten seconds."""
    run = make_run("training.evaluate_steps=2")
    saved: list[State] = []
    rounds: list[int] = []

    def evaluate(parts: int) -> dict[str, float]:
        for number in range(30):  # in small parts, as batches would be
            rounds.append(number)
            if number == 3:
                signal.raise_signal(signal.SIGTERM)
        return {}

    end, stopped = train(replace(run, evaluate=evaluate, save=saved.append))
    assert stopped and end.step == 2 and saved[-1].step == 2
    assert rounds == [0, 1, 2, 3]


def test_checkpoints_are_saved_by_steps_and_at_the_end_and_never_twice(make_run: MakeRun) -> None:
    for every, expected in ((3, [3, 6, 8]), (4, [4, 8]), (100, [8])):
        saved: list[int] = []
        train(make_run(f"training.checkpoint_steps={every}", save=lambda state, saved=saved: saved.append(state.step)))
        assert saved == expected


def test_checkpoints_are_saved_by_the_clock(make_run: MakeRun) -> None:
    saved: list[int] = []
    train(make_run("training.checkpoint_minutes=1e-9", save=lambda state: saved.append(state.step)))
    assert saved == list(range(1, 9))


def test_evaluations_change_nothing(make_run: MakeRun) -> None:
    """They come every so many steps and at the end; evaluating or not gives the same bits."""
    plain = make_run()
    train(plain)
    run = make_run("training.evaluate_steps=3")
    data_rows = run.source(0.0, {})[0]
    batches = [run.learner.prepare(rows, run.tokenizer) for rows in data_rows]
    lines: list[dict[str, Any]] = []
    figures = lambda parts: loop.evaluate(run.learner, batches)  # noqa: E731
    train(replace(run, evaluate=figures, log=lines.append))
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    assert [line["step"] for line in evaluations] == [3, 6, 8]
    assert all({"loss", "masked_lm.accuracy", "next_sentence.loss"} <= line.keys() for line in evaluations)
    assert equal(weights(run), weights(plain))


@pytest.mark.clock
def test_slow_evaluations_do_not_break_a_budget(make_run: MakeRun) -> None:
    """Beam search over a development set costs many times what its tokens would in a forward pass."""
    run = make_run("training.budget=8s", "training.evaluate_steps=1", "training.log_steps=1")
    began = time.monotonic()
    lines: list[dict[str, Any]] = []

    def search(parts: int) -> dict[str, float]:
        time.sleep(1.5)
        return {"translate.bleu": 1.0}

    train(replace(run, evaluate=search, log=lines.append, began=began))
    assert time.monotonic() - began < 8.5
    progress = [line["progress"] for line in lines]
    assert progress == sorted(progress) and lines[-1]["kind"] == "evaluation"


def test_a_slow_first_step_does_not_cost_the_budget(make_run: MakeRun) -> None:
    """It once made a run of 50 seconds end after 11: the last evaluation was estimated to take all the rest."""
    run = make_run("training.budget=50s", "training.evaluation_tokens=65536")
    timer = Timer(run.settings, run.state, time.monotonic() - 5)
    timer.note_step(5.0, 2000)
    assert timer.progress(1) < 0.01 and not timer.finished(1), "opening took the five seconds that are gone"
    timer.note_step(0.5, 2000)
    assert 0.5 * 50 < timer.usable() < 45, "and the others tell how long an evaluation may take"


@pytest.mark.clock
def test_a_budget_ends_by_the_clock_whatever_the_number_of_steps(make_run: MakeRun) -> None:
    run = make_run("training.budget=4s", "training.steps=1", "training.log_steps=1")
    began = time.monotonic()
    lines: list[dict[str, Any]] = []
    end, stopped = train(replace(run, log=lines.append, began=began))
    assert not stopped and end.step > 1
    assert time.monotonic() - began < 4.5
    rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    assert rates[-1] < 0.3 * max(rates), "the decay was planned over the budget"
    progress = [line["progress"] for line in lines]
    assert progress == sorted(progress) and progress[-1] == 1.0
