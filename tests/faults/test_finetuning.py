"""A fine-tuning run that is killed, again and again, ends with the bits of an undisturbed one."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.files.folders import verify_folder

KILLS = 3


@pytest.fixture
def command(finished_run: Path, tmp_path: Path) -> list[str]:
    """All but its --out: 36 steps with dropout, a checkpoint every third."""
    words = ("captain", "sailor", "gull", "mast")
    rows = [f"the {words[n % 4]} remembers number {n}\t{words[n % 4]}" for n in range(48)]
    for name, some in (("train", rows), ("dev", rows[:8])):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *some]) + "\n")
    settings = ("training.steps=36", "training.checkpoint_steps=3", "training.precision=fp32", "data.length=24")
    files = ["--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "dev.tsv")]
    options = [part for setting in settings for part in ("--set", setting)]
    return ["finetune", str(finished_run), "classify", *files, *options, "--quiet"]


@pytest.mark.timeout(300)
def test_kills_change_no_bit(
    command: list[str],
    start_keel: Callable[..., subprocess.Popen[str]],
    keel: Callable[..., subprocess.CompletedProcess[str]],
    fingerprints: Callable[[Path], tuple[str, str]],
    tmp_path: Path,
) -> None:
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    done = keel(*command, "--out", calm)
    assert done.returncode == 0, done.stderr
    for number in range(KILLS):
        resume = ["--resume"] if any(disturbed.glob("checkpoints/step-*")) else []
        process = start_keel(*command, "--out", disturbed, *resume)
        wanted, deadline = 3 * (3 * number + 1), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            steps = sorted(disturbed.glob("checkpoints/step-*"))
            if steps and int(steps[-1].name.split("-")[1]) >= wanted:
                break
            time.sleep(0.001)
        process.kill()
        process.wait()
    done = keel(*command, "--out", disturbed, "--resume")
    assert done.returncode == 0, done.stderr
    assert fingerprints(disturbed) == fingerprints(calm)
    verify_folder(disturbed)
