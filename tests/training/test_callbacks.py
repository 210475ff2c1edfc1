"""Callbacks see what is logged, end a run or fail without losing a step, and change nothing that is computed."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import keel as package
from keel.errors import UserError
from keel.files.folders import sha256, verify_folder
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain
from keel.training.callbacks import Callbacks
from keel.training.loop import Run, train
from keel.training.state import State

MakeRun = Callable[..., Run]
Entry = dict[str, Any]


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in run.learner.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_they_change_nothing(make_run: MakeRun) -> None:
    """Not even by drawing random numbers or by changing what they were given."""
    logged: list[list[Entry]] = [[], []]
    plain = make_run("training.evaluate_steps=3", log=logged[0].append)
    train(plain)

    def meddle(entry: Entry) -> None:
        torch.manual_seed(7)
        torch.rand(3)
        random.random()
        entry.clear()

    run = make_run("training.evaluate_steps=3", log=logged[1].append, callbacks=Callbacks(meddle, meddle))
    train(run)
    assert equal(weights(run), weights(plain))
    of_the_clock = ("elapsed", "tokens_per_second")
    plain_log, log = ([{k: v for k, v in e.items() if k not in of_the_clock} for e in entries] for entries in logged)
    assert log == plain_log and log[-1]["step"] == 8


def test_they_get_what_is_logged(make_run: MakeRun) -> None:
    steps, evaluations, logged = list[Entry](), list[Entry](), list[Entry]()
    run = make_run(
        "training.log_steps=3",
        "training.evaluate_steps=4",
        evaluate=lambda parts: {"masked_lm.loss": 5.0},
        log=logged.append,
        callbacks=Callbacks(steps.append, evaluations.append),
    )
    train(run)
    assert [entry["step"] for entry in steps] == list(range(1, 9))
    assert [entry for entry in steps if entry["step"] in (3, 6)] == [e for e in logged if e["kind"] == "train"]
    assert evaluations == [e for e in logged if e["kind"] == "evaluation"]
    assert [entry["step"] for entry in evaluations] == [4, 8]
    named = {"elapsed", "progress", "tokens", "loss", "masked_lm.loss", "learning_rate", "tokens_per_second"}
    assert all(named <= entry.keys() for entry in steps)


@pytest.mark.parametrize("answer", [None, True, 0, 0.0, "", [], np.False_])
def test_only_false_itself_ends_a_run(make_run: MakeRun, answer: Any) -> None:
    callbacks = Callbacks(lambda entry: answer)
    end, stopped = train(make_run(callbacks=callbacks))
    assert end.step == 8 and not stopped and callbacks.result() == {}


@pytest.mark.parametrize("name", ["on_step", "on_evaluate"])
def test_what_is_no_function_is_refused_at_once(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name} must be a function of one argument, found int$"):
        Callbacks(**{name: 3})


def test_false_ends_a_run_with_an_evaluation_and_a_save(make_run: MakeRun) -> None:
    saved, logged = list[State](), list[Entry]()
    callbacks = Callbacks(lambda entry: entry["step"] < 3)
    run = make_run(callbacks=callbacks, save=saved.append, log=logged.append)
    end, stopped = train(run)
    assert (end.step, stopped) == (3, False)
    assert saved == [end] and logged[-1]["kind"] == "evaluation"
    assert logged[-1]["progress"] == 3 / 8, "the plan was not completed"
    assert callbacks.result() == {"ended_by_callback": True}


def test_a_run_that_an_evaluation_ends_is_not_evaluated_once_more(make_run: MakeRun) -> None:
    seen = list[int]()

    def first_is_enough(entry: Entry) -> bool:
        seen.append(entry["step"])
        return False

    end, stopped = train(make_run("training.evaluate_steps=2", callbacks=Callbacks(None, first_is_enough)))
    assert (end.step, stopped, seen) == (2, False, [2])


@pytest.mark.parametrize("where", ["step", "evaluation", "last evaluation"])
def test_an_exception_is_raised_as_it_was_when_everything_is_saved(make_run: MakeRun, where: str) -> None:
    whole = make_run("training.evaluate_steps=4")
    train(whole)
    mine, saved = LookupError("my own mistake"), list[State]()

    def fail(entry: Entry) -> None:
        if entry["step"] == {"step": 3, "evaluation": 4, "last evaluation": 8}[where]:
            raise mine

    callbacks = Callbacks(fail) if where == "step" else Callbacks(None, fail)
    run = make_run("training.evaluate_steps=4", callbacks=callbacks, save=saved.append)
    with pytest.raises(LookupError) as caught:
        train(run)
    assert caught.value is mine and caught.value.args == ("my own mistake",)
    assert caught.traceback[-1].name == "fail"
    assert saved[-1].step == {"step": 3, "evaluation": 4, "last evaluation": 8}[where]
    run.callbacks = Callbacks()
    run.state = saved[-1]
    end, _ = train(run)
    assert end.step == 8 and equal(weights(run), weights(whole))


def test_a_signal_during_a_callback_stops_the_run_after_it(make_run: MakeRun) -> None:
    seen, saved = list[int](), list[State]()

    def slow(entry: Entry) -> None:
        if entry["step"] == 2:
            signal.raise_signal(signal.SIGINT)
        seen.append(entry["step"])

    end, stopped = train(make_run(callbacks=Callbacks(slow), save=saved.append))
    assert stopped and end.step == 2 and seen == [1, 2] and saved == [end]


@pytest.fixture
def again(corpus_path: Path, tiny: tuple[str, ...], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The run of `finished_run`, in Python."""

    def go(**options: Any) -> dict[str, Any]:
        overrides = [*tiny, "training.steps=40", "training.checkpoint_steps=5"]
        out = str(tmp_path / "out")
        return pretrain("bert-tiny", corpus=str(corpus_path), out=out, overrides=overrides, quiet=True, **options)

    return go


def test_an_ended_run_is_a_model_and_can_be_resumed_to_its_planned_end(
    again: Callable[..., dict[str, Any]],
    finished_run: Path,
    fingerprints: Callable[[Path], tuple[str, str]],
    tmp_path: Path,
) -> None:
    result = again(on_step=lambda entry: entry["step"] < 7)
    assert result["step"] == 7 and result["ended_by_callback"] is True and result["masked_lm.loss"] > 0
    verify_folder(tmp_path / "out")
    assert len(package.load(str(tmp_path / "out")).fill("The old [MASK] watches.")) == 1
    assert (tmp_path / "out" / "report.html").is_file()
    resumed = again(resume=True, on_step=lambda entry: None)
    assert resumed["step"] == 40 and "ended_by_callback" not in resumed
    assert fingerprints(tmp_path / "out") == fingerprints(finished_run)


def test_a_run_whose_callback_failed_can_be_resumed_to_the_same_bits(
    again: Callable[..., dict[str, Any]],
    finished_run: Path,
    fingerprints: Callable[[Path], tuple[str, str]],
    tmp_path: Path,
) -> None:
    def fail(entry: Entry) -> None:
        if entry["step"] == 13:
            raise ZeroDivisionError("of the caller")

    with pytest.raises(ZeroDivisionError, match="of the caller"):
        again(on_step=fail)
    saved = sorted(path.name for path in (tmp_path / "out" / "checkpoints").iterdir())
    assert saved[-1] == "step-00000013"
    assert again(resume=True)["step"] == 40
    assert fingerprints(tmp_path / "out") == fingerprints(finished_run)


def test_fine_tuning_tells_the_score_and_can_be_ended_by_it(
    finished_run: Path, labelled: Callable[..., Path], tmp_path: Path
) -> None:
    data = {"train": str(labelled("classify", 1, 40)), "dev": str(labelled("classify", 2, 20))}
    settings = ["training.epochs=4", "data.length=24", "training.precision=fp32"]

    def run(out: str, **options: Any) -> dict[str, Any]:
        where = str(tmp_path / out)
        return finetune(str(finished_run), "classify", **data, out=where, overrides=settings, quiet=True, **options)

    steps, scores = list[Entry](), list[Entry]()
    whole, plain = run("seen", on_step=steps.append, on_evaluate=scores.append), run("plain")
    assert {k: v for k, v in whole.items() if k not in ("out", "seconds")} == {
        k: v for k, v in plain.items() if k not in ("out", "seconds")
    }
    assert sha256(tmp_path / "seen" / "model.safetensors") == sha256(tmp_path / "plain" / "model.safetensors")
    assert len(steps) == whole["steps"] == 12 and [entry["step"] for entry in scores] == [3, 6, 9, 12]
    assert all(entry["score"] == entry[f"classify.{whole['primary_metric']}"] for entry in scores)

    ended = run("ended", on_evaluate=lambda entry: entry["score"] > 2)
    assert ended["steps"] == 3 and ended["ended_by_callback"] is True
    assert json.loads((tmp_path / "ended" / "result.json").read_text())["ended_by_callback"] is True
    assert "label" in package.load(str(tmp_path / "ended")).predict(["A gull."])[0]
