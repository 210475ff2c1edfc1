"""Micro-batches: neither their number nor computing them in parallel changes the gradients of a step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from keel.training import loop
from keel.training.loop import Run, train
from keel.training.state import State

NO_DROPOUT = ("model.backbone.dropout=0", "model.backbone.attention_dropout=0")
MakeRun = Callable[..., Run]


def test_the_number_of_micro_batches_does_not_change_the_gradients(make_run: MakeRun) -> None:
    gradients = []
    for count in (1, 4):
        run = make_run(f"training.micro_batches={count}", "training.max_grad_norm=1000", *NO_DROPOUT)
        measured = loop._gradients(run, State(), 0.0)
        gradients.append(({n: p.grad for n, p in run.learner.named_parameters()}, measured))
    (one, whole), (four, split) = gradients
    assert all(one[name] is not None and torch.allclose(one[name], four[name], atol=1e-5) for name in one)
    assert max(float(g.abs().max()) for g in one.values()) > 1e-2, "the tolerance is small beside the gradients"
    assert whole.tokens == split.tokens and whole.norm == pytest.approx(split.norm, abs=1e-5)
    for name, (loss, correct, count) in whole.scores.items():
        assert split.scores[name] == (pytest.approx(loss, rel=1e-5), correct, count)


def threads_of_a_new_thread() -> int:
    """A new thread inherits the number that was set last."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("count", [2, 3])
def test_parallel_micro_batches_give_the_same_bits(make_run: MakeRun, count: int) -> None:
    """With dropout, which each micro-batch draws by itself, and with more micro-batches than threads."""
    dropout = ("model.backbone.dropout=0.1", "model.backbone.attention_dropout=0.1")
    found = []
    for threads in (1, 2):
        run = make_run(f"training.micro_batches={count}", "training.parallel_micro_batches=2", *dropout)
        torch.set_num_threads(threads)
        try:
            measured = [loop._gradients(run, State(step), 0.0) for step in range(3)]
            assert threads_of_a_new_thread() == threads
        finally:
            torch.set_num_threads(1)
        found.append(({n: p.grad for n, p in run.learner.named_parameters()}, [m.scores for m in measured]))
    (one, scores), (other, same) = found
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert scores == same


def test_a_signal_waits_for_the_micro_batches_at_work(make_run: MakeRun) -> None:
    """Those of the interrupted step have ended when the run is saved, and the number of threads is restored."""
    run = make_run("training.micro_batches=2", "training.parallel_micro_batches=2")
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
