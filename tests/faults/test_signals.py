"""SIGTERM and Ctrl-C: the run saves, ends within ten seconds, and prints a command that really goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., subprocess.Popen[str]]


def interrupt(process: subprocess.Popen[str], out: Path, number: int) -> tuple[float, list[str]]:
    """Sends the signal once some steps are logged; the seconds until the end, and the lines of stderr."""
    deadline = time.monotonic() + 60
    log = out / "metrics.jsonl"
    while not (log.exists() and log.read_text().count("\n") >= 3) and time.monotonic() < deadline:
        assert process.poll() is None, process.log.read_text()  # type: ignore[attr-defined]
        time.sleep(0.005)
    began = time.monotonic()
    process.send_signal(number)
    process.wait(timeout=30)
    return time.monotonic() - began, process.log.read_text().splitlines()  # type: ignore[attr-defined]


def run_as_printed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a person does: copies the line into a shell, in the folder where the run was started."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        line, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "number, name",
    [(signal.SIGINT, "model"), (signal.SIGTERM, "my model's $1")],
    ids=["Ctrl-C", "SIGTERM in a folder with an odd name"],
)
@pytest.mark.clock
def test_a_stopped_run_goes_on_as_it_says(
    start_keel: Start,
    pretrain: list[str],
    finished_run: Path,
    fingerprints: Callable[[Path], tuple[str, str]],
    tmp_path: Path,
    number: int,
    name: str,
) -> None:
    process = start_keel(*pretrain, "--out", name, cwd=tmp_path)
    seconds, lines = interrupt(process, tmp_path / name, number)
    assert seconds < 10
    assert process.returncode == 0, "stopped as asked is not a failure"
    assert not any("Traceback" in line for line in lines)
    assert "stopped at step" in lines[-2] and "saved" in lines[-2]
    assert lines[-1].strip().startswith("keel pretrain ")
    assert list((tmp_path / name / "checkpoints").glob("step-*"))
    done = run_as_printed(lines[-1], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resuming at step" in done.stderr
    assert fingerprints(tmp_path / name) == fingerprints(finished_run)


def test_two_runs_do_not_write_into_one_folder(corpus_path: Path, tiny_options: list[str], tmp_path: Path) -> None:
    """A run that was left behind by its terminal is not disturbed; once it is dead, nothing is in the way."""
    out = tmp_path / "model"
    command = [sys.executable, "-c", "from keel.cli.main import main; main()", "pretrain", "bert-tiny", "--quiet"]
    command += ["--corpus", str(corpus_path), "--out", str(out), *map(str, tiny_options), "--steps", "100000"]
    command += ["--set", "training.checkpoint_steps=1000000"]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (out / "metrics.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.1)
    try:
        for more in ([], ["--resume"]):
            second = subprocess.run([*command, *more], capture_output=True, text=True, timeout=60)
            assert second.returncode == 2 and f"process {first.pid} on " in second.stderr
    finally:
        first.kill()
        first.wait()
    third = subprocess.run([*command, "--steps", "2"], capture_output=True, text=True, timeout=60)
    assert third.returncode == 0, third.stderr
