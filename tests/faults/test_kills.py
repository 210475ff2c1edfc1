"""kill -9 at any moment: the run that is resumed, again and again, ends with the bits of an undisturbed one.

KEEL_KILLS=20 kills twenty times, with two threads; the default is a handful, to stay fast.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.files.folders import verify_folder

KILLS = int(os.environ.get("KEEL_KILLS", "5"))
THREADS = "2" if KILLS > 5 else "1"
STEPS = 8 * KILLS


def logged_step(out: Path) -> int:
    """The step of the last whole log line, as somebody watching the run sees it."""
    lines = (out / "metrics.jsonl").read_text().split("\n") if (out / "metrics.jsonl").exists() else [""]
    return sum('"kind": "train"' in line for line in lines[:-1])


def wait_for(moment: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not moment() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


def saving(out: Path) -> bool:
    return any((out / "checkpoints").glob(".writing-*"))


def kill_once(process: subprocess.Popen[str], out: Path, how: str, source: random.Random, progress: int) -> None:
    if how == "starting":
        time.sleep(source.uniform(0.0, 2.0))
    else:
        wait_for(lambda: logged_step(out) >= progress, process)
        if how == "saving":
            wait_for(lambda: saving(out), process)
            time.sleep(source.uniform(0.0, 0.004))
        else:
            time.sleep(source.uniform(0.0, 0.05))
    process.kill()
    process.wait()


@pytest.mark.clock  # a kill must land inside a save of a few milliseconds
@pytest.mark.timeout(60 + 60 * KILLS)
def test_any_number_of_kills_changes_no_bit(
    start_keel: Callable[..., subprocess.Popen[str]],
    keel: Callable[..., subprocess.CompletedProcess[str]],
    pretrain: list[str],
    finished_run: Path,
    fingerprints: Callable[[Path], tuple[str, str]],
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": THREADS}
    command = [*pretrain, "--set", f"training.steps={STEPS}", "--set", "training.checkpoint_steps=2"]
    expected = finished_run
    if (STEPS, THREADS) != (40, "1"):
        expected = tmp_path / "undisturbed"
        assert keel(*command, "--out", expected, env=environment, timeout=600).returncode == 0
    source, out = random.Random(20), tmp_path / "killed"
    kinds = ("saving", "running", "saving", "starting")
    landed, inside_a_save = 0, 0
    for number in range(KILLS):
        resume = ["--resume"] if any((out / "checkpoints").glob("step-*")) else []
        process = start_keel(*command, "--out", out, *resume, env=environment)
        progress = 7 * number + source.randint(1, 7)
        kill_once(process, out, kinds[number % len(kinds)], source, progress)
        landed += process.returncode == -9
        inside_a_save += saving(out)
        for newest in sorted((out / "checkpoints").glob("step-*"))[-1:]:
            verify_folder(newest)  # it is whole after every kill
    assert landed == KILLS, "every kill met a run that was under way"
    assert inside_a_save, "some kills left a half-written checkpoint behind"
    done = keel(*command, "--out", out, "--resume", env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert fingerprints(out) == fingerprints(expected)
    assert not list(out.glob("**/.writing-*")), "leftovers of the kills are gone"
    steps = [line for line in (out / "metrics.jsonl").read_text().splitlines() if '"kind": "train"' in line]
    assert len(steps) == STEPS, "the log has every step once"
