"""`keel runs` tells the truth about every folder, whatever state a run has left it in, and fast."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keel.cli.main import run as command
from keel.comparing.grid import search
from keel.comparing.recipes import compare_pretraining
from keel.errors import UserError
from keel.files.locks import is_locked, locked
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain
from keel.stages.runs import compare_runs, list_runs


class Killed(BaseException):
    pass


def kill_at(step: int) -> Callable[[dict[str, Any]], None]:
    def stop(entry: dict[str, Any]) -> None:
        if entry["step"] == step:
            raise Killed

    return stop


@pytest.fixture
def project(
    finished_run: Path, corpus_path: Path, tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with a finished run, and one in runs/ that ended at step 7; made in this order."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished_run, "finished")
    overrides = [*tiny, "training.steps=20"]
    with pytest.raises(Killed):
        pretrain(
            "bert-tiny",
            corpus=os.path.relpath(corpus_path),
            out="runs/ended",
            overrides=overrides,
            quiet=True,
            on_step=kill_at(7),
        )
    return tmp_path


def by_name(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {run["folder"]: run for run in found}


def test_what_is_said_about_a_run_is_in_its_files(project: Path) -> None:
    found = list_runs()
    assert [run["folder"] for run in found] == ["runs/ended", "finished"], "the last one first, each once"
    ended, finished = found
    assert (finished["kind"], finished["name"], finished["state"]) == ("pretraining", "bert-tiny", "finished")
    log = [json.loads(line) for line in (project / "finished" / "metrics.jsonl").read_text().splitlines()]
    assert (finished["step"], finished["planned"], finished["tokens"]) == (40, 40, log[-1]["tokens"])
    assert finished["figure"] == "masked_lm.loss" and finished["value"] == log[-1]["masked_lm.loss"]
    assert finished["plateau"] is True and finished["resume"] is None and finished["problem"] == ""
    assert (ended["state"], ended["step"], ended["planned"]) == ("stopped", 7, 20)
    assert json.loads(json.dumps(found)) == found


def test_the_command_given_for_a_stopped_run_resumes_it_from_anywhere(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = by_name(list_runs())["runs/ended"]["resume"]
    assert here.startswith("keel pretrain runs/ended/recipe.yaml --corpus ") and here.endswith(" --resume")
    monkeypatch.chdir(project / "finished")
    (found,) = list_runs([str(project / "runs")])
    elsewhere = found["resume"]
    assert elsewhere == f"cd {project} && {here}"
    cd, rest = elsewhere.split(" && ")
    os.chdir(shlex.split(cd)[1])
    assert command([*shlex.split(rest)[1:], "--quiet"]) == 0
    again = by_name(list_runs())["runs/ended"]
    assert (again["state"], again["step"], again["resume"]) == ("finished", 20, None)


def test_a_finished_run_that_is_taken_further_and_stopped_is_stopped(
    project: Path, corpus_path: Path, tiny: tuple[str, ...]
) -> None:
    longer = [*tiny, "training.steps=60"]
    with pytest.raises(Killed):
        pretrain(
            "bert-tiny",
            corpus=str(corpus_path),
            out="finished",
            overrides=longer,
            quiet=True,
            resume=True,
            on_step=kill_at(43),
        )
    found = by_name(list_runs())["finished"]
    assert (found["state"], found["step"]) == ("stopped", 43)


def test_a_run_that_is_being_written_is_running(project: Path) -> None:
    with locked(project / "runs" / "ended"):
        found = by_name(list_runs())["runs/ended"]
        assert (found["state"], found["resume"]) == ("running", None)
        assert is_locked(project / "runs" / "ended")
    assert not is_locked(project / "runs" / "ended")
    with locked(project / "runs" / "ended"):  # asking leaves no lock
        pass


@pytest.mark.parametrize(
    ("damage", "state", "said"),
    [
        (lambda run: (run / "recipe.yaml").write_text("a: [b"), "unreadable", "not valid YAML"),
        (lambda run: (run / "recipe.yaml").write_text("name: x"), "unreadable", "not as Keel writes them"),
        (lambda run: (run / "recipe.yaml").unlink(), "unreadable", "recipe.yaml"),
        (lambda run: (run / "manifest.json").write_text("{"), "unreadable", "not valid JSON"),
        (lambda run: (run / "manifest.json").write_text('{"files": 3}'), "unreadable", "not the JSON Keel wrote"),
        (lambda run: (run / "metrics.jsonl").write_text("[1]\n[2]\n"), "unreadable", "not as Keel writes them"),
        (lambda run: (run / "metrics.jsonl").unlink(), "finished", ""),
        (lambda run: shutil.rmtree(run / "checkpoints"), "finished", ""),
        (lambda run: (run / "metrics.jsonl").open("a").write('{"kind": "tr'), "finished", ""),
    ],
)
def test_damage_is_told_and_hides_no_other_run(
    project: Path, damage: Callable[[Path], Any], state: str, said: str
) -> None:
    damage(project / "finished")
    found = by_name(list_runs())
    assert found["finished"]["state"] == state and said in found["finished"]["problem"]
    assert found["runs/ended"]["state"] == "stopped"
    assert command(["runs"]) == 0


def test_a_run_that_has_only_begun_says_so(project: Path) -> None:
    shutil.rmtree(project / "runs" / "ended" / "checkpoints")
    (project / "runs" / "ended" / "checkpoints").mkdir()
    found = by_name(list_runs())["runs/ended"]
    assert (found["state"], found["step"]) == ("stopped", 0) and "no checkpoint yet" in found["resume"]


def test_links_hidden_folders_and_what_is_too_deep_are_left_alone(project: Path) -> None:
    for place in ("a/b/deep", "a/b/c/too-deep", ".hidden/run"):
        shutil.copytree(project / "finished", project / place)
    (project / "link").symlink_to(project / "finished")
    (project / "loop").symlink_to(project)
    assert set(by_name(list_runs())) == {"finished", "runs/ended", "a/b/deep"}
    assert [run["folder"] for run in list_runs(["a/b/c"])] == ["a/b/c/too-deep"]
    with pytest.raises(UserError, match=r"^nowhere: no such folder"):
        list_runs(["nowhere"])


@pytest.fixture
def tuned(finished_run: Path, labelled: Callable[..., Path], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    data = {"train": str(labelled("classify", 1, 40)), "dev": str(labelled("classify", 2, 20))}
    settings = ("data.length=24", "training.precision=fp32", "training.epochs=2", "training.learning_rate=1e-4")

    def go(out: str, *more: str, run: Callable[..., dict[str, Any]] = finetune, **options: Any) -> dict[str, Any]:
        given = {**data, "out": str(tmp_path / out), "overrides": [*settings, *more], "quiet": True}
        return run(str(finished_run), "classify", **given, **options)

    return go


def test_fine_tuning_is_listed_with_the_score_of_the_model_that_was_kept(
    tuned: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    result = tuned("t")
    (found,) = list_runs([str(tmp_path)])
    assert (found["kind"], found["name"], found["state"], found["step"]) == ("fine-tuning", "classify", "finished", 6)
    assert found["figure"] == "classify.accuracy" and found["value"] == result["accuracy"]
    assert found["figures"]["classify.macro_f1"] == result["macro_f1"]


def test_two_runs_are_compared_by_what_differs(
    tuned: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [tuned("one"), tuned("other", "training.learning_rate=2e-3", "training.epochs=3")]
    folders = [str(tmp_path / name) for name in ("one", "other")]
    compared = compare_runs(folders)
    settings = {row["name"]: row["values"] for row in compared["settings"]}
    assert settings == {
        "training.learning_rate": [1e-4, 2e-3],
        "training.epochs": [2.0, 3.0],
        "training.steps": [6, 9],
    }
    figures = {row["name"]: row["values"] for row in compared["figures"]}
    assert figures["classify.accuracy"] == [result["accuracy"] for result in results]
    assert compared["same_data"] is True and compared["circumstances"] == []
    assert command(["runs", *folders, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == compared
    assert command(["runs", *folders]) == 0
    shown = capsys.readouterr().out
    assert "training.learning_rate" in shown and "data and starting model: the same" in shown
    assert "training.batch_size" not in shown


def test_runs_on_other_data_are_told_apart(project: Path, tuned: Callable[..., dict[str, Any]]) -> None:
    tuned("t")
    compared = compare_runs(["finished", "t"])
    assert compared["same_data"] is False
    settings = {row["name"]: row["values"] for row in compared["settings"]}
    assert settings["task.kind"] == [None, "classify"]
    with pytest.raises(UserError, match=r"^runs: not the folder of a run"):
        compare_runs(["finished", "runs"])
    assert command(["runs", "finished", "runs"]) == 0, "then they are listed"


def test_a_search_is_one_run_until_it_is_given_itself(tuned: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = tuned("s", run=search, tries=["training.learning_rate=5e-5,1e-3"])
    (found,) = list_runs([str(tmp_path)])
    assert (found["kind"], found["state"], found["value"]) == ("search", "finished", result["best"]["mean"])
    inside = list_runs([str(tmp_path / "s")])
    assert sorted(Path(run["folder"]).name for run in inside) == ["01-seed-1", "02-seed-1", "s"]


def test_a_comparison_is_finished_when_all_of_it_is(corpus_path: Path, tiny: tuple[str, ...], tmp_path: Path) -> None:
    few = [*tiny, "training.log_steps=2"]
    options: dict[str, Any] = {"corpus": str(corpus_path), "tokens": 1024, "overrides": few, "quiet": True}
    compare_pretraining(["bert-mini", "roberta-mini"], out=str(tmp_path / "c"), **options)
    (found,) = list_runs([str(tmp_path)])
    assert (found["kind"], found["name"], found["state"]) == ("comparison", "bert-mini, roberta-mini", "finished")
    assert len(list_runs([str(tmp_path / "c")])) == 3
    with locked(tmp_path / "c" / "bert-mini-seed-1" / "model"):
        assert list_runs([str(tmp_path)])[0]["state"] == "running"
    plan = json.loads((tmp_path / "c" / "plan.json").read_text())
    (tmp_path / "c" / "plan.json").write_text(json.dumps({**plan, "seeds": 2}))  # as --resume with more seeds begins
    assert list_runs([str(tmp_path)])[0]["state"] == "stopped"


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, keel.stages.runs as r; r.list_runs(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"torch", "numpy", "pydantic", "rich", "jinja2"} & set(done.stdout.split())


@pytest.mark.clock
def test_the_answer_takes_less_than_half_a_second(
    project: Path, keel: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for number in range(10):
        shutil.copytree(project / "finished", project / "runs" / str(number))

    def seconds(*arguments: str) -> float:
        began = time.monotonic()
        assert keel(*arguments, cwd=project).returncode == 0
        return time.monotonic() - began

    start, whole = (min(seconds(*line) for _ in range(4)) for line in (["--version"], ["runs", "--json"]))
    assert whole < max(0.5, start + 0.25), "the start of Python takes longer on a busy machine"
