"""SIGINT, SIGTERM and SIGHUP at random moments of every verb: a code that says so, no traceback, nothing left behind.

KEEL_FAULTS=all takes ten moments of every verb; the default is one moment of two verbs, to stay fast.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ALL = os.environ.get("KEEL_FAULTS") == "all"
MOMENTS = 10 if ALL else 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
VERBS = ("pretrain", "embed", "tokenizer", "corpus", "finetune", "predict", "evaluate", "words", "demo", "compare")
VERBS += ("doctor", "recipe", "fill", "generate", "translate", "probe", "vocab", "extend-positions")
PRINTS = ("predict", "doctor", "recipe", "fill", "generate", "translate")  # verbs without --out
NEVER_END = ("pretrain", "finetune")
# The interpreter's own start, about 20 ms, is before any of Keel's code: there a signal has its default effect.
BEGUN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
BEGUN += "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
BEGUN += "from keel.cli.main import main; print('begun', flush=True); main()"


@pytest.fixture(scope="module")
def lines(
    text_file: Path,
    tokenizer_path: Path,
    pretrain: list[str],
    finished_run: Path,
    keel: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[str]]:
    """A command line for each verb, all but its --out."""
    folder = tmp_path_factory.mktemp("lines")
    table, classifier = folder / "data.tsv", folder / "classifier"
    rows = [f"the {word} keel {number}\t{word}" for number in range(200) for word in ("old", "new")]
    table.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    tagged = folder / "tagged.conll"
    tagged.write_text("the O\nold B-AGE\nkeel O\n\n" * 200)
    found = {
        "tokenizer": ["tokenizer", "train", str(text_file), "--vocab-size", "300"],
        "corpus": ["corpus", "build", str(text_file), "--tokenizer", str(tokenizer_path), "--workers", "1"],
        "pretrain": [*pretrain, "--set", "training.steps=100000"],
        "embed": ["embed", str(finished_run), "--file", str(table)],
    }
    if ALL:
        tuning = ["finetune", str(finished_run), "classify", "--train", str(table), "--dev", str(table)]
        done = keel(*tuning, "--epochs", "1", "--out", classifier, "--quiet")
        assert done.returncode == 0, done.stderr
        found["finetune"] = [*tuning, "--epochs", "1000"]
        found["predict"] = ["predict", str(classifier), "--file", str(table)]
        found["evaluate"] = ["evaluate", str(classifier), "--data", str(table)]
        found["words"] = ["words", "export", str(finished_run)]
        found["demo"] = ["demo"]
        corpus = pretrain[pretrain.index("--corpus") + 1]
        found["compare"] = ["compare", "pretraining", "bert-tiny", "--corpus", corpus, "--budget", "1m"]
        found["doctor"], found["recipe"] = ["doctor"], ["recipe", "list"]
        found["fill"] = ["fill", str(finished_run), "the [MASK]"]
        found["probe"] = ["probe", str(finished_run), "--train", str(tagged), "--dev", str(tagged)]
        found["vocab"] = ["vocab", "shrink", str(finished_run), str(text_file)]
        found["extend-positions"] = ["extend-positions", str(finished_run), "--to", "2000"]
        # A model of another kind is refused, which is an answer too.
        found["generate"] = ["generate", str(finished_run), "the"]
        found["translate"] = ["translate", str(classifier), "the"]
    return found


def moments() -> Iterator[tuple[str, float, signal.Signals]]:
    source = random.Random(7)
    for verb in VERBS if ALL else VERBS[:2]:
        for number in range(MOMENTS):
            yield verb, source.uniform(0.0, 4.0), SIGNALS[(number + len(verb)) % 3]


@pytest.mark.parametrize(("verb", "seconds", "number"), list(moments()))
def test_a_signal_at_any_moment(
    lines: dict[str, list[str]], verb: str, seconds: float, number: signal.Signals, tmp_path: Path
) -> None:
    out = [] if verb in PRINTS else ["--out", str(tmp_path / ("out.npy" if verb == "embed" else "out"))]
    child = subprocess.Popen(
        [sys.executable, "-c", BEGUN, *lines[verb], *out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert child.stdout and child.stdout.readline() == "begun\n"
    time.sleep(seconds)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    # A verb that ends by itself may be hit in the interpreter's last moments, where signals have their default effect.
    ended = (0, 128 + number) if verb in NEVER_END else (0, 2, 128 + number, -number)
    assert child.returncode in ended, said
    assert "Traceback" not in said and "Exception ignored" not in said, said
    if child.returncode == 128 + number:
        assert said.splitlines()[-1].startswith("keel: stopped by "), said
    assert not list(tmp_path.rglob(".writing-*")), f"left behind after {number.name} at {seconds:.2f} s"


def test_a_reader_of_stderr_that_goes_away_does_not_end_a_run(pretrain: list[str], tmp_path: Path) -> None:
    out = tmp_path / "model"
    command = [sys.executable, "-c", "from keel.cli.main import main; main()", *pretrain, "--out", str(out)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr and child.stderr.readline()
    child.stderr.close()
    assert child.wait(120) == 0
    assert (out / "manifest.json").exists()


def test_a_terminal_that_is_closed_saves_the_run(pretrain: list[str], tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    out = tmp_path / "model"
    command = [*pretrain, "--set", "training.steps=100000", "--set", "training.checkpoint_steps=1000000"]
    words = [sys.executable, "-c", "from keel.cli.main import main; main()", *command, "--out", str(out)]
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes it ignored
        os.execv(sys.executable, words)
    deadline = time.monotonic() + 60
    os.set_blocking(terminal, False)
    log = out / "metrics.jsonl"
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:  # until the first step is done
        try:
            os.read(terminal, 65536)
        except BlockingIOError:
            time.sleep(0.05)
    os.close(terminal)  # the kernel sends SIGHUP
    while time.monotonic() < deadline + 30:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        pytest.fail("the run did not end")
    assert os.waitstatus_to_exitcode(status) == 0
    assert list((out / "checkpoints").glob("step-*"))
