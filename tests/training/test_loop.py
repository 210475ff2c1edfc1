"""The loop: slices do not change what is minimised, bad numbers never reach the weights, a run can be cut anywhere."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from keel import recipe as recipes
from keel.errors import UserError
from keel.interfaces import Rows
from keel.stages.data import open_data
from keel.stages.pretrain import build_learner
from keel.training import loop
from keel.training.loop import Run, State, Timer, train
from keel.training.optimizer import make_optimizer, optimizer_tensors, restore_optimizer

CPU = torch.device("cpu")
NO_DROPOUT = ("model.backbone.dropout=0", "model.backbone.attention_dropout=0")
MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(corpus_path: Any, tiny: tuple[str, ...]) -> MakeRun:
    """A run of the tiny recipe whose hooks only remember what they were given."""

    def make(*overrides: str, **parts: Any) -> Run:
        recipe = recipes.load("bert-tiny", [*tiny, "training.steps=8", *overrides])
        data = open_data(recipe, str(corpus_path), None)
        learner = build_learner(data.recipe)
        optimizer = make_optimizer(learner, recipe.training)
        run = Run(
            learner=learner,
            optimizer=optimizer,
            tokenizer=data.tokenizer,
            source=data.slices,
            settings=recipe.training,
            state=State(),
            device=CPU,
            precision="fp32",
            evaluate=dict,
            save=lambda state: None,
            log=lambda line: None,
            show=lambda line: None,
        )
        return replace(run, **parts)

    return make


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in run.learner.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_number_of_slices_does_not_change_the_gradients(make_run: MakeRun) -> None:
    gradients = []
    for slices in (1, 4):
        run = make_run(f"training.slices={slices}", "training.clip=1000", *NO_DROPOUT)
        measured = loop._gradients(run, State(), 0.0)
        gradients.append(({n: p.grad for n, p in run.learner.named_parameters()}, measured))
    (one, whole), (four, sliced) = gradients
    assert all(one[name] is not None and torch.allclose(one[name], four[name], atol=1e-5) for name in one)
    assert max(float(g.abs().max()) for g in one.values()) > 1e-2, "the bound is small beside the gradients"
    assert whole.tokens == sliced.tokens and whole.norm == pytest.approx(sliced.norm, abs=1e-5)
    for name, (loss, correct, count) in whole.scores.items():
        assert sliced.scores[name] == (pytest.approx(loss, rel=1e-5), correct, count)


def threads_of_a_new_thread() -> int:
    """What was set last is what a new thread takes over."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("slices", [2, 3])
def test_slices_side_by_side_give_the_bits_of_one_after_the_other(make_run: MakeRun, slices: int) -> None:
    """With dropout, which each slice draws by itself, and with more slices than threads."""
    share = ("model.backbone.dropout=0.1", "model.backbone.attention_dropout=0.1")
    found = []
    for threads in (1, 2):
        run = make_run(f"training.slices={slices}", "training.lanes=2", *share)
        torch.set_num_threads(threads)
        try:
            measured = [loop._gradients(run, State(step), 0.0) for step in range(3)]
            assert threads_of_a_new_thread() == threads
        finally:
            torch.set_num_threads(1)
        found.append(({n: p.grad for n, p in run.learner.named_parameters()}, [m.scores for m in measured]))
    (one, scores), (other, same) = found
    assert equal(one, other) and scores == same


def test_a_signal_between_slices_side_by_side_leaves_nothing_at_work(make_run: MakeRun) -> None:
    """The interrupted step's slices have ended when the run is saved, and the threads are as they were."""
    run = make_run("training.slices=2", "training.lanes=2")
    at_work: list[int] = []
    real = run.learner.forward

    def slow(batch: Any) -> Any:
        at_work.append(1)
        time.sleep(0.3)
        scores = real(batch)
        at_work.pop()
        return scores

    run.learner.forward = slow  # type: ignore[method-assign]
    saved: list[int] = []
    torch.set_num_threads(2)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))
    try:
        timer.start()
        state, stopped = train(replace(run, save=lambda state: saved.append(len(at_work))))
        assert threads_of_a_new_thread() == 2
    finally:
        timer.cancel()
        torch.set_num_threads(1)
    assert stopped and state.step == 0 and saved == [0]


def test_slices_hold_every_row_once_and_are_of_one_size(corpus_path: Any, tiny: tuple[str, ...]) -> None:
    recipe = recipes.load("bert-tiny", [*tiny, "training.batch_tokens=1024", "training.slices=4"])
    data = open_data(recipe, str(corpus_path), None)
    whole, _ = data.streams["main"].take(loop.Cursor(), 1024)
    slices, _ = data.slices(0.0, {})
    assert len(slices) == 4
    assert sorted(int(key) for part in slices for key in part.keys) == sorted(map(int, whole.keys))
    sizes = [sum(part.lengths) for part in slices]
    assert max(sizes) - min(sizes) <= recipe.data.length
    assert all(list(part.lengths) == sorted(part.lengths, reverse=True) for part in slices)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_learns_and_its_pieces_add_up_to_the_whole(make_run: MakeRun, optimizer: str) -> None:
    """Stopping after any step and going on in another process (fresh objects) gives the same bits."""
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
    assert equal(optimizer_seen[1], optimizer_seen[3]), "moments and step count are as they were, too"
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
    parameter = run.learner.backbone.token_table()
    calls: list[int] = []

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return gradient * float("nan") if len(calls) == 1 else gradient

    parameter.register_hook(spoil)
    seen = [weights(run)]
    train(replace(run, show=lambda line: seen.append(weights(run))))
    assert equal(seen[0], seen[1]) and not equal(seen[1], seen[2])


def test_a_run_without_hope_ends_and_leaves_the_weights(make_run: MakeRun) -> None:
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


def test_a_signal_is_obeyed_within_a_step_and_the_step_is_not_lost(make_run: MakeRun) -> None:
    """The signal comes as rows are fetched in step 4: saved is the state after step 3, and going on is exact."""
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
    assert signal.getsignal(signal.SIGTERM) is before, "the handler that was there is back"
    train(replace(run, state=end))
    assert equal(weights(run), weights(whole))


def test_a_signal_before_the_first_step_still_leaves_something_to_resume(make_run: MakeRun) -> None:
    run = make_run()
    saved: list[State] = []

    def source(progress: float, cursors: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        raise AssertionError("the signal was not obeyed")

    end, stopped = train(replace(run, source=source, save=saved.append))
    assert stopped and end.step == 0 and [state.step for state in saved] == [0]


def test_a_signal_during_an_evaluation_does_not_wait_for_its_end(make_run: MakeRun) -> None:
    """A held-out evaluation of a large model takes minutes on a processor; a stop must take under ten seconds."""
    run = make_run("training.evaluate_steps=2")
    saved: list[State] = []
    rounds: list[int] = []

    def evaluate() -> dict[str, float]:
        for _ in range(30):  # three seconds, in small parts as batches would be
            rounds.append(1)
            time.sleep(0.1)
        return {}

    timer = threading.Timer(0.0, lambda: None)

    def show(line: dict[str, Any]) -> None:
        nonlocal timer
        if line["step"] == 2:
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
            timer.start()

    end, stopped = train(replace(run, evaluate=evaluate, show=show, save=saved.append))
    timer.cancel()
    assert stopped and end.step == 2 and saved[-1].step == 2
    assert len(rounds) < 30


def test_saves_come_by_steps_and_at_the_end_and_never_twice(make_run: MakeRun) -> None:
    for every, expected in ((3, [3, 6, 8]), (4, [4, 8]), (100, [8])):
        saved: list[int] = []
        train(make_run(f"training.checkpoint_steps={every}", save=lambda state, saved=saved: saved.append(state.step)))
        assert saved == expected


def test_saves_come_by_the_clock(make_run: MakeRun) -> None:
    saved: list[int] = []
    train(make_run("training.checkpoint_minutes=1e-9", save=lambda state: saved.append(state.step)))
    assert saved == list(range(1, 9))


def test_evaluations_come_in_between_and_at_the_end_and_touch_nothing(make_run: MakeRun) -> None:
    """Evaluating or not gives the same bits."""
    plain = make_run()
    train(plain)
    run = make_run("training.evaluate_steps=3")
    data_rows = run.source(0.0, {})[0]
    batches = [run.learner.prepare(rows, run.tokenizer) for rows in data_rows]
    lines: list[dict[str, Any]] = []
    figures = lambda: loop.evaluate(run.learner, batches)  # noqa: E731
    train(replace(run, evaluate=figures, log=lines.append))
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    assert [line["step"] for line in evaluations] == [3, 6, 8]
    assert all({"loss", "masked_lm.accuracy", "next_sentence.loss"} <= line.keys() for line in evaluations)
    assert equal(weights(run), weights(plain))


def test_the_long_phase_comes_at_the_end(corpus_path: Any, tiny: tuple[str, ...]) -> None:
    recipe = recipes.load("bert-tiny", [*tiny, "data.long_phase={length: 64, share: 0.25}"])
    data = open_data(recipe, str(corpus_path), None)
    longest = [max(length for part in data.slices(p, {})[0] for length in part.lengths) for p in (0, 0.74, 0.75, 0.99)]
    assert longest[0] <= 32 and longest[1] <= 32 and longest[2] > 32 and longest[3] > 32


@pytest.mark.clock
def test_slow_evaluations_do_not_break_a_budget(make_run: MakeRun) -> None:
    """A search over a whole development set costs many times what its tokens would in a forward pass."""
    run = make_run("training.budget=8s", "training.evaluate_steps=1", "training.log_steps=1")
    began = time.monotonic()
    lines: list[dict[str, Any]] = []

    def search() -> dict[str, float]:
        time.sleep(1.5)
        return {"translate.bleu": 1.0}

    train(replace(run, evaluate=search, log=lines.append, began=began))
    assert time.monotonic() - began < 8.5
    progress = [line["progress"] for line in lines]
    assert progress == sorted(progress) and lines[-1]["kind"] == "evaluation"


def test_a_slow_first_step_does_not_cost_the_budget(make_run: MakeRun) -> None:
    """It once made a run of 50 seconds end after 11: the last evaluation was thought to take all the rest."""
    run = make_run("training.budget=50s", "training.evaluation_tokens=65536")
    timer = Timer(replace(run, began=time.monotonic() - 5))
    timer.note_step(5.0, 2000)
    assert timer.progress(1) < 0.01 and not timer.finished(1), "opening took the five seconds that are gone"
    timer.note_step(0.5, 2000)
    assert 0.5 * 50 < timer.usable() < 45, "and the others tell how long an evaluation may take"


@pytest.mark.clock
def test_a_budget_ends_by_the_clock_whatever_the_steps(make_run: MakeRun) -> None:
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
