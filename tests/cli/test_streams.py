"""The command's streams: lines are answered as they arrive; closed, full and narrow streams are one line."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keel.cli import common
from keel.console import clean, path_argument, shell_command
from keel.errors import UserError

KEEL = [sys.executable, "-c", "from keel.cli.main import main; main()"]


def stdin_of(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_groups_grow_while_lines_wait_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"line {number}" for number in range(5000)]
    stdin_of(monkeypatch, "\r\n".join(lines).encode())
    groups = list(common.text_groups(["-"]))
    assert [len(group) for group in groups[:4]] == [1, 2, 4, 8]
    assert max(map(len, groups)) == common.GROUP_LINES
    assert [line for group in groups for line in group] == lines


def test_lines_before_one_that_is_not_text_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin_of(monkeypatch, "one\n汉\n".encode() + b"caf\xe9\nfour\n")
    groups = common.text_groups(["-"])
    assert [next(groups), next(groups)] == [["one"], ["汉"]]
    with pytest.raises(UserError, match="stdin, line 3: invalid UTF-8: byte 0xe9"):
        next(groups)


def test_blank_lines_are_texts_only_where_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for blank, expected in ((True, ["a", "", "b", ""]), (False, ["a", "b"])):
        stdin_of(monkeypatch, b"a\n\nb\n\n")
        assert list(common.lines_or_arguments(["-"], blank)) == expected


def test_a_line_is_answered_while_stdin_stays_open(finished_run: Path) -> None:
    command = [*KEEL, "fill", str(finished_run), "--json", "-"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin and child.stdout
    try:
        for text in ("the [MASK] keel", "a [MASK] gull"):
            child.stdin.write(f"{text}\n".encode())
            assert select.select([child.stdout], [], [], 60)[0], "no answer, though the line is there"
            assert json.loads(child.stdout.readline())["text"] == text
        child.stdin.close()
        assert child.wait(30) == 0
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("redirect", "code", "said"),
    [
        ("--version >&-", 2, "keel: stdout is closed"),
        ("--version > /dev/full", 2, "keel: stdout: the disk is full"),
        ("recipe list > /dev/full", 2, "keel: stdout: the disk is full"),
        ("recipe list 2>&- > /dev/null", 0, ""),
        ("recipe show no-such-recipe <&-", 2, "keel: "),
    ],
)
def test_closed_and_full_streams_are_one_line(redirect: str, code: int, said: str) -> None:
    line = f'exec "{sys.executable}" -c "from keel.cli.main import main; main()" {redirect}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(said) and done.stderr.count("\n") == (1 if said else 0)


def test_a_closed_stdin_is_not_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match="stdin is closed"):
        next(common.text_groups(["-"]))


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_json_is_json_in_every_encoding_and_with_every_name(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"file": os.fsdecode(b"caf\xe9"), "text": "é 汉 🧭"}
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    common.print_json(value)
    sys.stdout.flush()
    assert json.loads(raw.getvalue().decode(encoding)) == value


@pytest.mark.parametrize("module", ["typer", "keel.cli.root"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_imports_is_one_line(module: str, number: signal.Signals, tmp_path: Path) -> None:
    """The import of a module stands still until the signal comes."""
    code = f"""if True:
        import signal, sys, time
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit it ignored
        class Slow:
            def find_spec(self, name, *rest):
                if name == {module!r}:
                    print("ready", file=sys.stderr, flush=True)
                    time.sleep(30)
        sys.meta_path.insert(0, Slow())
        from keel.cli.main import main
        main()"""
    child = subprocess.Popen([sys.executable, "-c", code, "doctor"], stderr=subprocess.PIPE, text=True)
    assert child.stderr and child.stderr.readline() == "ready\n"
    child.send_signal(number)
    name = "Ctrl-C" if number is signal.SIGINT else number.name
    assert child.stderr.read() == f"keel: stopped by {name}\n"
    assert child.wait() == 128 + number


def test_the_entry_imports_nothing_slow() -> None:
    code = "import sys; import keel.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"typer", "click", "rich", "torch", "numpy"} & set(done.stdout.split())


@pytest.mark.parametrize(
    "name",
    ["plain", "two words", 'it\'s "$HOME" `x` \\', "-o", "a\nb\t\x1b[31m", "👩‍🚀❤️", "\u2028", os.fsdecode(b"caf\xe9")],
)
def test_a_printed_command_can_be_pasted(name: str) -> None:
    line = shell_command(["printf", "%s", name])
    assert clean(line) == line, "nothing in it is changed on the way to the terminal"
    done = subprocess.run(["bash", "-c", line], capture_output=True)
    assert done.stdout == os.fsencode(name)


def test_a_path_is_never_taken_for_an_option() -> None:
    assert [path_argument(path) for path in ("-o", "out", "/x/-o")] == ["./-o", "out", "/x/-o"]


def test_a_table_carries_no_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_table("a\x1b[31m", ["b\x1b]0;x\x07"], [["c\x1b[2J"]])
    assert "\x1b" not in capsys.readouterr().out


def test_time_is_not_needed_for_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless stdin: the first group comes from the first read."""
    reading, writing = os.pipe()
    os.write(writing, b"y\n" * 1000)
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    began = time.monotonic()
    assert next(common.text_groups(["-"])) == ["y"]
    assert time.monotonic() - began < 5
    os.close(writing)


# Sends itself a signal when the import of torch reaches a module.
INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module, sys.argv[1:] = sys.argv[1], ["fill", "no-such-model", "text"]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from keel.cli.main import main
main()
"""


@pytest.mark.parametrize("module", ["torch.autograd", "torch.distributed.rpc", "torch.nn", "torch._jit_internal"])
def test_a_signal_while_torch_is_imported_is_one_line(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "keel: stopped by Ctrl-C\n")
