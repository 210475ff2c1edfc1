"""The command as a person meets it: how fast it answers, what it says when something is wrong, what it returns."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
import typer

from keel.cli import common
from keel.cli.main import run
from keel.cli.root import app
from keel.errors import Stopped, UserError

KEEL = [sys.executable, "-c", "from keel.cli.main import main; main()"]


def stage(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Puts functions in place of a stage, so that the command line alone is tested."""
    module = types.ModuleType(f"keel.stages.{name}")
    for key, function in functions.items():
        setattr(module, key, function)
    monkeypatch.setitem(sys.modules, f"keel.stages.{name}", module)


def raising(error: BaseException) -> Any:
    def function(*args: Any, **options: Any) -> dict[str, Any]:
        raise error

    return function


@pytest.mark.clock
def test_help_answers_at_once() -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([*KEEL, "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.3


def test_nothing_heavy_is_imported_for_help() -> None:
    code = "import sys; from keel.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"torch", "numpy", "pydantic", "yaml", "jinja2", "rich", "tokenizers"} & set(done.stderr.split())


def commands() -> list[list[str]]:
    found: list[list[str]] = []

    def walk(command: Any, path: list[str]) -> None:
        found.append(path)
        if isinstance(command, common.Group):
            context = typer.Context(command)
            for name in command.list_commands(context):
                walk(command.get_command(context, name), [*path, name])

    walk(typer.main.get_command(app), [])
    return found


def test_the_verbs_are_listed_in_the_order_they_are_used() -> None:
    line = "doctor demo tokenizer corpus recipe pretrain fetch fill explain generate words finetune evaluate predict "
    line += "translate embed probe serve compare runs vocab extend-positions"
    assert [path[0] for path in commands() if len(path) == 1] == line.split()


def test_every_file_in_commands_is_a_verb() -> None:
    files = {file.stem for file in (Path(common.__file__).parent / "commands").glob("[!_]*.py")}
    assert files == {path[0].replace("-", "_") for path in commands() if len(path) == 1}


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_help_has_an_example_that_names_the_verb(path: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example" in out
    assert " ".join(["keel", *path]) in out[out.index("Example") :]


@pytest.mark.parametrize(
    "path",
    [
        p
        for p in commands()
        if len(p) == 2
        or (
            p
            and p[0]
            in ["doctor", "demo", "fetch", "pretrain", "fill", "finetune", "evaluate", "predict", "embed", "runs"]
        )
    ],
)
def test_every_verb_speaks_json(path: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run([*path, "--help"])
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("corups build", "Did you mean 'corpus'?"),
        ("corpus biuld x", "Did you mean 'build'?"),
        ("corpus", "build, inspect"),
        ("--verison", "Did you mean '--version'?"),
        ("corpus build x --tokenizer t --out o --documnets line", "Did you mean '--documents'?"),
        ("corpus build x --out o", "--tokenizer"),
        ("corpus build --tokenizer t --out o", "TEXT"),
        ("tokenizer train x --out o --vocab-size many", "--vocab-size"),
        ("tokenizer train x --out o --vocab-size 0", "--vocab-size"),
        ("pretrain bert-mini --corpus c --out", "--out"),
        ("fill model text --top 0", "--top"),
        ("corpus build x --tokenizer t --out o --held-out 2", "--held-out"),
        ("doctor extra-word", "extra-word"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.startswith("keel: ") and caught.err.count("\n") == 1
    assert said in caught.err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("notes.txt: line 3 is\nnot text"), 2, "keel: notes.txt: line 3 is not text\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "keel: result: the disk is full"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/locked/file"),
            2,
            "keel: /locked/file: permission denied",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file", b"gone"), 2, "keel: gone: no such file"),
        (OSError(errno.EIO, "Input/output error", "disk.bin"), 2, "keel: disk.bin: Input/output error"),
        (
            ZeroDivisionError("division by zero"),
            1,
            "keel: internal error: ZeroDivisionError: division by zero (run again",
        ),
        (OSError("4 requested and 0 written"), 1, "keel: internal error: OSError"),
        (KeyboardInterrupt(), 130, "keel: stopped by Ctrl-C"),
        (MemoryError(), 2, "keel: not enough memory"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_goes_wrong_in_a_stage_is_one_line(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage(monkeypatch, "tokenizer", train=raising(error))
    assert run(["tokenizer", "train", "x", "--out", "result"]) == code
    caught = capsys.readouterr()
    assert caught.err.startswith(said) and caught.err.count("\n") == 1
    assert caught.out == ""


def test_a_stopped_run_is_no_failure_and_shows_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage(
        monkeypatch,
        "pretrain",
        pretrain=raising(Stopped("stopped at step 5. Go on with:\n  keel pretrain ... --resume")),
    )
    assert run(["pretrain", "bert-tiny", "--corpus", "c", "--out", "o"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "keel: stopped at step 5. Go on with:",
        "  keel pretrain ... --resume",
    ]


@pytest.mark.parametrize("place", [0, 2, 4])
def test_debug_shows_the_traceback_wherever_it_stands(
    place: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage(monkeypatch, "tokenizer", inspect=raising(ValueError("odd")))
    line = ["tokenizer", "inspect", "t", "x"]
    line.insert(place, "--debug")
    assert run(line) == 1
    assert "Traceback" in capsys.readouterr().err


def test_debug_after_two_dashes_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    stage(monkeypatch, "tokenizer", inspect=lambda path, texts, **o: seen.append(texts) or {"size": 1})
    assert run(["tokenizer", "inspect", "t", "--", "--debug"]) == 0
    assert seen == [["--debug"]]


def test_a_reader_that_goes_away_is_not_an_error() -> None:
    code = "from keel.cli import main, common; import sys, types\n"
    code += "m = types.ModuleType('keel.stages.tokenizer'); m.inspect = lambda *a, **o: {'size': 'x' * 1000000}\n"
    code += "sys.modules['keel.stages.tokenizer'] = m; main.main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "tokenizer", "inspect", "t", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout and child.stderr
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait() == 141


def test_ctrl_c_in_a_real_process_is_130_and_one_line(tmp_path: Path) -> None:
    code = "from keel.cli import main; import signal, sys, time, types\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs inherit it ignored
    code += "def wait(*a, **o):\n    print('ready', file=sys.stderr, flush=True); time.sleep(30)\n"
    code += "m = types.ModuleType('keel.stages.tokenizer'); m.inspect = wait\n"
    code += "sys.modules['keel.stages.tokenizer'] = m; main.main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "tokenizer", "inspect", "t"], stderr=subprocess.PIPE, text=True
    )
    assert child.stderr
    assert child.stderr.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    assert child.stderr.read() == "keel: stopped by Ctrl-C\n"
    assert child.wait() == 130


def test_version_and_bare_command(capsys: pytest.CaptureFixture[str]) -> None:
    from keel import __version__

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"keel {__version__}\n"
    assert run([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_a_message_in_a_terminal_without_unicode_does_not_fail() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*KEEL, "语料"], env=environment, capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith(b"keel: keel has no verb ")


def test_json_is_json_whatever_the_stage_returns(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    common.print_json(
        {"a": float("nan"), "b": np.int64(3), "c": Path("x"), "d": [float("inf"), np.float32(0.5)], "e": "汉"}
    )
    out = capsys.readouterr().out
    assert json.loads(out, parse_constant=pytest.fail) == {"a": None, "b": 3, "c": "x", "d": [None, 0.5], "e": "汉"}
