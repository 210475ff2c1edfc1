"""`keel serve --demo` serves what `keel demo` has made, or makes it first; `keel demo` ends with that command."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keel.cli.main import run
from keel.demo import demo
from keel.demo.folders import MARKER, MODELS, demo_models

Refused = Callable[..., str]


@pytest.fixture(scope="module")
def made(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a demo leaves behind, with smaller models in its places."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    of_kind = {"code": "tagger", "default": "reader", "encoder": "bert", "untrained": "early"}
    for name, place in MODELS.items():
        shutil.copytree(folders[of_kind.get(name, "classifier")], folder / place)
    (folder / MARKER).write_text("{}")
    return folder


def test_the_models_of_a_demo_are_served(made: Path, start_server: Callable[..., Any]) -> None:
    server = start_server("--demo", made)
    with urllib.request.urlopen(f"{server.url}/v1/models") as answer:
        listed = {one["id"]: one["abilities"] for one in json.load(answer)["data"]}
    assert list(listed) == ["encoder", "untrained", "package", "follows", "code", "default"]
    assert "fill" in listed["encoder"] and all("predict" in listed[name] for name in list(listed)[2:])
    with urllib.request.urlopen(f"{server.url}/v1/runs") as answer:
        assert "model" in [one["folder"] for one in json.load(answer)["runs"]]


def test_the_demo_is_run_if_it_has_not_been(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    """A folder that lacks one model is one whose demo was stopped; the exit code of the demo is handed on."""
    monkeypatch.chdir(tmp_path)
    commands, served = list[list[str]](), list[list[str]]()

    def make(command: list[str]) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        code = 2 if len(commands) == 1 else 0
        if not code:
            shutil.copytree(made, "keel-demo", dirs_exist_ok=True)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", make)
    monkeypatch.setattr("keel.cli.commands.serve._serve", lambda models, settings: served.append(models))
    shutil.copytree(made, "keel-demo")
    shutil.rmtree(Path("keel-demo") / MODELS["default"])
    assert run(["serve", "--demo", "--port", "0"]) == 2 and not served
    assert run(["serve", "--demo", "--port", "0"]) == 0
    assert [command[-3:] for command in commands] == [["demo", "--out", "keel-demo"]] * 2
    assert served == [[f"{name}={path}" for name, path in demo_models(Path("keel-demo")).items()]]
    assert run(["serve", "--demo", "--port", "0"]) == 0 and len(commands) == 2, "it is there now"
    assert "give one folder" in refused("serve", "--demo", "a", "b")


def test_keel_demo_ends_with_the_command_for_its_page(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "demo", lambda out, **options: {"out": str(shutil.copytree(made, out))})
    served = list[list[str]]()
    monkeypatch.setattr("keel.cli.commands.serve._serve", lambda models, settings: served.append(models))
    assert run(["demo", "--out", "my models", "--quiet"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    _, *command = shlex.split(last.partition(": ")[2])
    assert run([*command, "--port", "0"]) == 0
    assert served[0][0] == "encoder=my models/model"
