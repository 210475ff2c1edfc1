"""Every verb that computes with a model takes --threads, and refuses what would only exhaust the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from keel.cli.main import run

VERBS = {
    "fill": ["fill", "MODEL", "the [MASK]"],
    "embed": ["embed", "MODEL", "--file", "TEXTS", "--out", "OUT"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_threads_are_used(
    verb: str, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    used = list[int]()
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    (tmp_path / "texts.txt").write_text("the keel\n")
    words = {"MODEL": str(finished_run), "TEXTS": str(tmp_path / "texts.txt"), "OUT": str(tmp_path / "v.npy")}
    command = [words.get(word, word) for word in VERBS[verb]]
    assert run([*command, "--threads", "1"]) == 0 and 1 in used
    for verbs in (["predict", "m", "x"], ["evaluate", "m", "--data", "x"], ["translate", "m", "x"], command):
        assert run([*verbs, "--threads", "100000"]) == 2
        assert "--threads 100000: give 1 to" in capfd.readouterr().err
