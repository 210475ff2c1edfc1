"""TensorBoard reads what `metrics.jsonl` says, whatever happened to the run; and nothing else depends on it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keel.errors import UserError
from keel.files.folders import read_manifest, verify_folder
from keel.reporting.report import read_metrics
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain
from keel.training import tracking
from keel.training.state import State

Points = dict[str, list[tuple[int, float]]]
OF_THE_LINE = {"kind", "step", "elapsed", "progress", "tokens", "held_out_share", "plateau"}


def shown(out: Path, kind: str) -> Points:
    """What TensorBoard draws."""
    events = EventAccumulator(str(out / "tensorboard" / kind))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def logged(out: Path, kind: str) -> Points:
    """The same from `metrics.jsonl`; TensorBoard has 32 bits for a figure."""
    found: Points = {}
    for entry in read_metrics(out / "metrics.jsonl")[0]:
        if entry["kind"] == kind:
            for name in entry.keys() - OF_THE_LINE:
                found.setdefault(name, []).append((entry["step"], float(np.float32(entry[name]))))
    return found


@pytest.fixture
def go(corpus_path: Path, tiny: tuple[str, ...], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(*more: str, **options: Any) -> dict[str, Any]:
        overrides = [*tiny, "training.steps=20", "training.checkpoint_steps=4", "training.evaluate_steps=6", *more]
        given = {"corpus": str(corpus_path), "out": str(tmp_path / "out"), "track": "tensorboard"}
        return pretrain("bert-tiny", overrides=overrides, quiet=True, **{**given, **options})

    return run


def check(out: Path, steps: int) -> None:
    for kind in ("train", "evaluation"):
        assert shown(out, kind) == logged(out, kind), kind
    assert [step for step, _ in shown(out, "train")["learning_rate"]] == list(range(1, steps + 1))


def test_the_events_are_the_log(go: Callable[..., Any], tmp_path: Path) -> None:
    go()
    out = tmp_path / "out"
    check(out, steps=20)
    assert {"loss", "masked_lm.loss", "next_sentence.accuracy", "tokens_per_second"} <= shown(out, "train").keys()
    assert [step for step, _ in shown(out, "evaluation")["masked_lm.loss"]] == [6, 12, 18, 20]


def test_they_are_for_people(go: Callable[..., Any], tmp_path: Path) -> None:
    """No part of the model folder: they may be changed or removed, and the folder is verified all the same."""
    go()
    out = tmp_path / "out"
    assert not [name for name in read_manifest(out)["files"] if "tensorboard" in name]
    for file in (out / "tensorboard").rglob("*tfevents*"):
        file.write_text("mine")
    verify_folder(out)
    assert go("training.steps=22", resume=True, track=None)["step"] == 22


@pytest.mark.parametrize("cut", [0, 7])
def test_a_resumed_run_repeats_no_point(go: Callable[..., Any], tmp_path: Path, cut: int) -> None:
    """The run dies in step 11, perhaps in the middle of a record, and goes on from the checkpoint of step 8."""
    out = tmp_path / "out"

    class Died(BaseException):
        pass

    def die(entry: dict[str, Any]) -> None:
        if entry["step"] == 11:
            (out / "checkpoints" / "step-00000008").rename(tmp_path / "kept")
            raise Died

    with pytest.raises(Died):
        go(on_step=die)
    for later in (out / "checkpoints").iterdir():  # what an ending callback saves, a killed process does not
        later.rename(tmp_path / later.name)
    (tmp_path / "kept").rename(out / "checkpoints" / "step-00000008")
    (file,) = (out / "tensorboard" / "train").iterdir()
    file.write_bytes(file.read_bytes()[: file.stat().st_size - cut])
    assert [step for step, _ in shown(out, "train")["loss"]] == list(range(1, 12 if not cut else 11))
    go(resume=True)
    check(out, steps=20)


def test_a_finished_run_that_is_resumed_repeats_no_point(go: Callable[..., Any], tmp_path: Path) -> None:
    go()
    go(resume=True)
    check(tmp_path / "out", steps=20)
    go("training.steps=26", resume=True)
    check(tmp_path / "out", steps=26)


def test_points_of_a_run_that_never_saved_are_discarded(go: Callable[..., Any], tmp_path: Path) -> None:
    """It died before its first checkpoint, and is begun anew in the same folder."""
    out = tmp_path / "out"
    (out / "checkpoints").mkdir(parents=True)
    earlier = tracking.TensorBoard(out, State())
    for step in (1, 2, 30):
        earlier.log({"kind": "train", "step": step, "loss": 9.0, "learning_rate": 1.0})
    earlier.close()
    go()
    check(out, steps=20)


def test_fine_tuning_is_tracked_too(finished_run: Path, labelled: Callable[..., Path], tmp_path: Path) -> None:
    train, out = str(labelled("classify", 1, 40)), tmp_path / "out"
    settings = ["training.epochs=3", "data.length=24", "training.precision=fp32", "training.log_steps=2"]
    finetune(str(finished_run), "classify", train=train, out=str(out), overrides=settings, track="tensorboard")
    for kind in ("train", "evaluation"):
        assert shown(out, kind) == logged(out, kind) != {}
    assert len(shown(out, "evaluation")["classify.accuracy"]) == 3


def test_an_unknown_tracker_and_a_missing_extra_are_one_line_before_anything_is_opened(
    go: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"^--track tensorbord: .* Did you mean 'tensorboard'\?$"):
        go(track="tensorbord", corpus="no such corpus")
    with pytest.raises(UserError, match=r"^--track w: .* Known: tensorboard\.$"):
        finetune("no such model", "classify", train="none", out=str(tmp_path / "out"), track="w")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("tensorboard.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"pip install 'keel-nlp\[track\]'"):
        go()
    assert not (tmp_path / "out").exists()


def test_tensorflow_is_not_loaded_even_where_it_is_installed(tmp_path: Path) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('loaded')")
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "from keel.training import tracking; from keel.training.state import State\n"
        "tracking.check_tracker('tensorboard')\n"
        "tracker = tracking.open_tracker('tensorboard', pathlib.Path(sys.argv[1]), State())\n"
        "tracker.log({'kind': 'train', 'step': 1, 'loss': 2.0}); tracker.close()\n"
        "print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_the_command_that_resumes_a_tracked_run_tracks_it(
    keel: Callable[..., subprocess.CompletedProcess[str]], pretrain: list[str], tmp_path: Path
) -> None:
    from keel.stages.pretrain import _resume_command

    assert _resume_command("c", "o", "auto", None, "tensorboard").endswith("--resume --track tensorboard")
    done = keel(*pretrain, "--out", tmp_path / "out", "--track", "tensorboard", "--json", "-q")
    assert done.returncode == 0 and json.loads(done.stdout)["step"] == 40, done.stderr
    check(tmp_path / "out", steps=40)
