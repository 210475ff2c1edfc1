"""Progress where a run is started: a notebook has one line that changes; a log has lines. IPython is not installed
here, so a notebook is a recording of what `IPython.display` would be told."""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import keel
from keel.console import NotebookLine, notebook_line
from keel.stages.pretrain import pretrain
from keel.training.progress import TrainingProgress, drawn

Bundle = dict[str, str]


class Notebook:
    """What a cell shows: its outputs in order; those with a handle can change."""

    def __init__(self) -> None:
        self.outputs: list[list[str]] = []  # the texts that each output has had

    def display(self, bundle: Bundle, *, raw: bool, display_id: bool = False) -> Any:
        assert raw and list(bundle) == ["text/plain"]
        self.outputs.append([bundle["text/plain"]])
        return Handle(self.outputs[-1]) if display_id else None

    @property
    def shown(self) -> list[str]:
        return [texts[-1] for texts in self.outputs]


class Handle:
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def update(self, bundle: Bundle, *, raw: bool) -> None:
        assert raw
        self.texts.append(bundle["text/plain"])


class ZMQInteractiveShell:  # the shell of Jupyter's kernel
    pass


class ColabShell(ZMQInteractiveShell):
    pass


class TerminalInteractiveShell:
    pass


def install(monkeypatch: pytest.MonkeyPatch, shell: object) -> Notebook:
    notebook, ipython, display = Notebook(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    display.display = notebook.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return notebook


def test_only_a_notebook_is_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notebook_line() is None and "IPython" not in sys.modules, "it is never imported to find out"
    for shell, expected in ((ZMQInteractiveShell(), True), (ColabShell(), True), (None, False)):
        install(monkeypatch, shell)
        assert isinstance(notebook_line(), NotebookLine) == expected
    install(monkeypatch, TerminalInteractiveShell())
    assert notebook_line() is None, "ipython in a terminal draws the bar of a terminal"


def test_one_line_changes_while_a_run_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    corpus_path: Path,
    tiny: tuple[str, ...],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    notebook = install(monkeypatch, ZMQInteractiveShell())
    monkeypatch.setattr(NotebookLine, "EVERY", 0.0)
    overrides = [*tiny, "training.steps=20"]
    pretrain("bert-tiny", corpus=str(corpus_path), out=str(tmp_path / "out"), overrides=overrides)
    (line,) = [texts for texts in notebook.outputs if len(texts) > 1]
    assert len(line) == 20 and [text.split("step ")[1].split()[0] for text in line] == [str(n) for n in range(1, 21)]
    assert line[-1].startswith(drawn(0.95)) and "tokens/s" in line[-1]
    assert notebook.shown[0].startswith("starting: bert-tiny")
    assert [text.split(":")[0] for text in notebook.shown if text.startswith("held-out")][-1] == "held-out at step 20"
    assert capfd.readouterr() == ("", ""), "nothing in red"


def test_the_last_state_is_shown_however_fast_a_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = install(monkeypatch, ZMQInteractiveShell())
    progress = TrainingProgress()
    for step in range(1, 1001):
        entry = {"step": step, "progress": step / 1000, "tokens_per_second": 5.0, "remaining": 0.0}
        progress.show({**entry, "masked_lm.loss": 2.0})
    progress.close()
    (line,) = notebook.outputs
    assert len(line) < 20 and "step 1,000" in line[-1]


def test_a_quiet_run_shows_nothing_and_control_characters_reach_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = install(monkeypatch, ZMQInteractiveShell())
    quiet = TrainingProgress(quiet=True)
    quiet.note("a note")
    quiet.show({"step": 1, "progress": 0.1})
    quiet.close()
    assert notebook.outputs == []
    TrainingProgress().note("a\x1b[2Jb")
    assert notebook.shown == ["a\\x1b[2Jb"]


def test_a_corpus_is_built_with_one_line_too(
    monkeypatch: pytest.MonkeyPatch, tokenizer_path: Path, text_file: Path, tmp_path: Path
) -> None:
    notebook = install(monkeypatch, ZMQInteractiveShell())
    keel.build_corpus(text_file, tokenizer_path, tmp_path / "corpus")
    assert len(notebook.shown) == 1 and notebook.shown[0].startswith("100%  documents ")
    keel.build_corpus(text_file, tokenizer_path, tmp_path / "quiet", quiet=True)
    assert len(notebook.shown) == 1


def test_a_log_has_lines_at_growing_intervals(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = TrainingProgress()
    for step in range(1, 301):
        now[0] += 1.0
        progress.show({"step": step, "progress": step / 300, "tokens_per_second": 5.0, "remaining": 9.0})
    progress.close()
    steps = [int(line.split("step ")[1].split()[0]) for line in capfd.readouterr().err.splitlines()]
    gaps = [after - before for before, after in pairwise(steps)]
    assert gaps == sorted(gaps) and len(steps) < 15 and max(gaps) <= 61
