"""Every system call that changes a folder fails once, or is the process's last: nothing is lost, nothing half written.

For each verb that writes, its calls are counted in an undisturbed run; then call after call is made to fail with a full
disk (ENOSPC) or a broken one (EIO), or the process is killed there, halfway through a write. After each fault the same
command runs again (with --resume if the first attempt left a run) and must end with the files of the undisturbed run.

KEEL_FAULTS=all tries every call, as `make faults` does; otherwise a few calls of each verb, chosen by a fixed seed.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fork_server import KILL, Server, compile_shim

from keel.files.folders import FOR_PEOPLE, MANIFEST, sha256, verify_folder

ALL = os.environ.get("KEEL_FAULTS") == "all"
FAULTS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "KILL": KILL}
CLOCKS = (*FOR_PEOPLE, MANIFEST, "run.json", "result.json")  # hold times, or sums of files that do


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    library = compile_shim(tmp_path_factory.mktemp("shim"))
    if library is None:
        pytest.skip("needs Linux and a C compiler")
    server = Server(library)
    yield server
    server.close()


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, text_file: Path, finished_run: Path) -> Path:
    """Word vectors to export, and labelled files."""
    from keel.cli.main import run

    folder = tmp_path_factory.mktemp("given")
    words = ("captain", "sailor", "gull", "mast")
    rows = [f"the {words[n % 4]} remembers number {n}\t{words[n % 4]}" for n in range(24)]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    lines = "".join(f"word{n} {n}.5 -{n}.25\n" for n in range(40))
    (folder / "vectors.txt").write_text(f"40 2\n{lines}")
    assert run(["words", "import", str(folder / "vectors.txt"), "--out", str(folder / "vectors")]) == 0
    return folder


def commands(
    verb: str,
    given: Path,
    text_file: Path,
    tokenizer_path: Path,
    corpus_path: Path,
    run: Path,
    classifier: Path,
    tiny: list[str],
) -> list[Any]:
    short = ["--set", "training.steps=4", "--set", "training.checkpoint_steps=2", "--quiet"]
    tune = ["--set", "training.precision=fp32", "--set", "data.length=24", "--set", "training.keep_checkpoints=1"]
    files = ["--train", given / "train.tsv", "--dev", given / "train.tsv"]
    asked = ["--file", given / "train.tsv", "--quiet"]
    return {
        "predict": ["predict", classifier, *asked],
        "embed": ["embed", run, *asked],
        "tokenizer train": ["tokenizer", "train", text_file, "--vocab-size", 300, "--quiet"],
        "corpus build": ["corpus", "build", text_file, "--tokenizer", tokenizer_path, "--workers", 1, "--quiet"],
        "pretrain": ["pretrain", "bert-tiny", "--corpus", corpus_path, *tiny, *short],
        "finetune": ["finetune", run, "classify", *files, *tune, *short],
        "words export": ["words", "export", given / "vectors"],
    }[verb]


def snapshot(out: Path) -> dict[str, str]:
    """Checksums of everything that does not depend on the clock; of the checkpoints, the newest."""
    if out.is_file():
        return {out.name: sha256(out)}
    steps = sorted((out / "checkpoints").glob("step-*"))
    files = [p for p in out.rglob("*") if p.is_file() and ("checkpoints" not in p.parts or steps[-1] in p.parents)]
    return {str(p.relative_to(out)): sha256(p) for p in sorted(files) if p.name not in CLOCKS}


def check_fault(answer: dict[str, Any], how: int, what: str) -> None:
    if how == KILL and answer["code"] == -9:
        return
    assert answer["code"] in (0, 2), (what, answer)
    assert "Traceback" not in answer["error"] and "internal error" not in answer["error"], (what, answer)
    if answer["code"] == 2:
        assert len(answer["error"].splitlines()) == 1, (what, answer)


def again(server: Server, command: list[Any], out: Path, what: str) -> None:
    """The same command once more, as a person would: with --resume if it says so."""
    answer = server.run([*command, "--out", out], out.parent)
    if answer["code"] and "--resume" in answer["error"]:
        answer = server.run([*command, "--out", out, "--resume"], out.parent)
    elif answer["code"] and out.exists():  # published before the fault: the result is there
        assert "already there" in answer["error"] or "finished corpus" in answer["error"], (what, answer)
        return
    assert answer["code"] == 0, (what, answer)


@pytest.mark.timeout(1800 if ALL else 300)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "verb", ["finetune", "pretrain", "corpus build", "tokenizer train", "words export", "predict", "embed"]
)
def test_a_fault_at_any_call_loses_nothing(
    verb: str,
    fault: str,
    server: Server,
    given: Path,
    text_file: Path,
    tokenizer_path: Path,
    corpus_path: Path,
    finished_run: Path,
    classifier: Path,
    tiny_options: list[str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    command = commands(verb, given, text_file, tokenizer_path, corpus_path, finished_run, classifier, tiny_options)
    calm = tmp_path / "calm" / {"predict": "out.csv", "embed": "out.npy"}.get(verb, "out")
    calm.parent.mkdir()
    undisturbed = server.run([*command, "--out", calm], calm.parent)
    assert undisturbed["code"] == 0, undisturbed
    wanted, calls = snapshot(calm), undisturbed["seen"]
    assert calls > 5, "the calls are not seen"
    for nth in range(calls) if ALL else random.Random(verb + fault).sample(range(calls), 2):
        what = f"{verb}: {fault} at call {nth} of {calls}"
        out = tmp_path / "work" / calm.name
        out.parent.mkdir()
        answer = server.run([*command, "--out", out], out.parent, nth, FAULTS[fault])
        check_fault(answer, FAULTS[fault], what)
        again(server, command, out, what)
        assert snapshot(out) == wanted, what
        if out.is_dir():
            verify_folder(out)
        left = [p.name for p in out.parent.iterdir() if p != out]
        assert not left or (fault == "KILL" and verb == "words export"), (what, left)
        shutil.rmtree(out.parent)
    record_property("calls", calls)
