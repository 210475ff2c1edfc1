"""A budget of wall-clock time is kept, and ends with a usable model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

BUDGET = 8.0


def start_up() -> float:
    """What importing torch and Keel takes right now: it comes before Keel can look at a clock."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import keel.cli.main, keel.stages.pretrain"], check=True)
    return time.monotonic() - began


@pytest.mark.clock
def test_a_budget_is_kept_and_used(
    keel: Callable[..., subprocess.CompletedProcess[str]],
    corpus_path: Path,
    tiny_options: list[str],
    tmp_path: Path,
) -> None:
    out = tmp_path / "model"
    imports = start_up()
    began = time.monotonic()
    options = ["--corpus", corpus_path, "--out", out, "--budget", f"{BUDGET:g}s", *tiny_options, "--json"]
    done = keel("pretrain", "bert-tiny", *options)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    # Beyond the budget: the start of the interpreter and its end, with as much again for a neighbour who wakes up.
    assert seconds <= BUDGET + 2 * imports + 1
    result = json.loads(done.stdout)
    assert 0.5 * BUDGET <= result["seconds"] <= BUDGET
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    assert max(rates) > 0.9e-3 and rates[-1] < 0.1e-3, "the decay was planned over the budget"
    assert rates[0] < 0.3e-3, "so was the warm-up: opening the corpus does not use it up"
    assert lines[-1]["kind"] == "evaluation" and lines[-1]["progress"] == 1.0
    import keel as package

    answers = package.load(str(out)).fill("The old [MASK] watches the harbour.")
    assert len(answers) == 1 and len(answers[0]) == 5
