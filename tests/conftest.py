"""What many tests share: a small generated text, a tokenizer and a corpus made from it by the real stages, the real
command, a tiny recipe, and small labelled files of every kind.

Everything is generated from a fixed seed and made once per session; nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processes import restore_signals

# Models this small gain nothing from a second thread, and lose much when a neighbour is busy: two threads then wait for
# each other. Set before torch is imported, here and in the commands the tests start.
os.environ["OMP_NUM_THREADS"] = "1"

pytest_plugins = ["served"]  # running servers and their models, for tests/serving and tests/web

VOCABULARY = 300
# Dropout is on, for what must be repeatable includes it; fp32, because `auto` may settle otherwise on another day.
TINY = (
    "model.backbone.layers=1",
    "model.backbone.width=32",
    "model.backbone.heads=2",
    "model.backbone.feed_forward=64",
    "model.backbone.positions=64",
    "model.backbone.dropout=0.1",
    "model.backbone.attention_dropout=0.1",
    "data.length=32",
    "training.batch_tokens=256",
    "training.evaluation_tokens=512",
    "training.log_steps=1",
    "training.precision=fp32",
)

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}

Command = Callable[..., subprocess.CompletedProcess[str]]


def english(source: random.Random) -> str:
    subject = source.choice(("the old captain", "a young sailor", "our carpenter", "the tall ship", "every gull"))
    verb = source.choice(("watches", "remembers", "follows", "repairs", "carries", "forgets"))
    thing = source.choice(("the keel", "a broken mast", "seven lanterns", "the harbour", "an oak plank"))
    time = source.choice(("at dawn", "before the storm", "in winter", "without a word", "near the island"))
    return f"{subject} {verb} {thing} {time}.".capitalize()


def chinese(source: random.Random) -> str:
    subject = source.choice(("老船长", "年轻的水手", "木匠", "那条大船"))
    verb = source.choice(("看着", "记得", "修理", "带来"))
    thing = source.choice(("龙骨", "桅杆", "七盏灯", "港口"))
    return f"{subject}{verb}{thing}。"


def documents(seed: int, count: int) -> list[str]:
    """Short documents of one to twelve sentences, one in six Chinese."""
    source = random.Random(seed)
    return [
        " ".join((chinese if number % 6 == 5 else english)(source) for _ in range(source.randint(1, 12)))
        for number in range(count)
    ]


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "sea.jsonl"
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in documents(seed=1, count=240)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer_path(text_file: Path) -> Path:
    from keel.stages.tokenizer import train

    out = text_file.parent / "tokenizer"
    train([str(text_file)], out, vocab_size=VOCABULARY)
    return out


@pytest.fixture(scope="session")
def corpus_path(text_file: Path, tokenizer_path: Path) -> Path:
    from keel.stages.corpus import build

    out = text_file.parent / "corpus"
    build([str(text_file)], str(tokenizer_path), str(out), workers=1, held_out=0.1)
    return out


@pytest.fixture(scope="session")
def corpus(corpus_path: Path) -> Any:
    from keel.corpus.store import Corpus

    return Corpus.open(corpus_path)


@pytest.fixture(scope="session")
def tokenizer(tokenizer_path: Path) -> Any:
    from keel.tokenizers.wordpiece import WordPiece

    return WordPiece.load(tokenizer_path)


@pytest.fixture(scope="session")
def tiny() -> tuple[str, ...]:
    """Overrides that make bert-tiny a model of a few thousand parameters."""
    return TINY


@pytest.fixture(scope="session")
def tiny_options() -> list[str]:
    """The same for the command line."""
    return [part for override in TINY for part in ("--set", override)]


@pytest.fixture(scope="session")
def keel_command() -> list[str]:
    """The installed console script, or the module where the package is only on the path."""
    script = Path(sys.executable).with_name("keel")
    return [str(script)] if script.exists() else [sys.executable, "-c", "from keel.cli.main import main; main()"]


@pytest.fixture(scope="session")
def keel(keel_command: list[str]) -> Command:
    """Runs the real command to its end: `keel("fill", model, text, cwd=...)`."""

    def run(*arguments: object, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*keel_command, *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            **{"env": ENVIRONMENT, **options},
        )

    return run


@pytest.fixture
def start_keel(keel_command: list[str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the real command and leaves it running; whatever still runs when the test ends is killed.

    stderr goes to a file, whose path is the process' `log`: nobody has to empty a pipe.
    """
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
        log = tmp_path / f"stderr-{len(started)}.txt"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [*keel_command, *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                text=True,
                **{"env": ENVIRONMENT, "preexec_fn": restore_signals, **options},
            )
        process.log = log  # type: ignore[attr-defined]
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def pretrain(corpus_path: Path, tiny_options: list[str]) -> list[str]:
    """The command line of a short run, all but its --out: 40 steps, a checkpoint every fifth."""
    short = ["--set", "training.steps=40", "--set", "training.checkpoint_steps=5"]
    return ["pretrain", "bert-tiny", "--corpus", str(corpus_path), *tiny_options, *short]


@pytest.fixture(scope="module")
def word_corpus(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of whole words, with its tokenizer `words` beside it; each module has its own, and writes there."""
    from keel.stages.corpus import build
    from keel.stages.tokenizer import train

    folder = tmp_path_factory.mktemp("words")
    train([str(text_file)], str(folder / "words"), kind="words", min_frequency=3, lowercase=False)
    build([str(text_file)], str(folder / "words"), str(folder / "corpus"), workers=1, held_out=0.1)
    return folder / "corpus"


@pytest.fixture(scope="session")
def finished_run(keel: Command, pretrain: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That run, undisturbed. Look, but copy before you touch."""
    out = tmp_path_factory.mktemp("undisturbed") / "model"
    done = keel(*pretrain, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step"] == 40
    return out


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command line in this process (a new one would only import torch once more); its one line."""

    from keel.cli.main import run

    def check(*arguments: object) -> str:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        lines = err.splitlines()
        assert code == 2, err
        assert len(lines) == 1 and lines[0].startswith("keel: "), err
        assert out == "" and "internal error" not in err
        return lines[0]

    return check


@pytest.fixture(scope="session")
def classifier(finished_run: Path, labelled: Callable[[str, int, int], Path]) -> Path:
    """A model that was taught four labels for a few steps: `captain`, `sailor`, `carpenter` and `gull`; the columns of
    its data are `text` and `label`."""
    from keel.stages.finetune import finetune

    out = finished_run.parent / "classifier"
    data = str(out.with_suffix(".tsv"))
    _, rows = labelled("classify", 1, 40).read_text().split("\n", 1)
    Path(data).write_text(f"text\tlabel\n{rows}")
    settings = ["training.steps=4", "training.precision=fp32", "data.length=24"]
    finetune(str(finished_run), "classify", train=data, dev=data, out=str(out), overrides=settings, quiet=True)
    return out


@pytest.fixture(scope="session")
def resume_here() -> Callable[[list[str], Path], None]:
    """Resumes a run in this process: a new one would only import torch once more."""

    def resume(pretrain: list[str], out: Path) -> None:
        from keel.cli.main import run

        assert run([*pretrain, "--out", str(out), "--resume", "--quiet"]) == 0

    return resume


@pytest.fixture(scope="session")
def fingerprints() -> Callable[[Path], tuple[str, str]]:
    """SHA-256 of a finished run's weights, which are those of a checkpoint, and of the last one's optimizer state."""
    from keel.files.folders import sha256

    def of(out: Path) -> tuple[str, str]:
        saved = sorted((out / "checkpoints").glob("step-*"))
        weights = sha256(out / "model.safetensors")
        assert weights in [sha256(path / "model.safetensors") for path in saved]
        return weights, sha256(saved[-1] / "state.safetensors")

    return of


@pytest.fixture(scope="session")
def one_line() -> Callable[[subprocess.CompletedProcess[str]], str]:
    """The one line a curable error prints: nothing on stdout, exit code 2, no traceback."""

    def check(done: subprocess.CompletedProcess[str]) -> str:
        lines = done.stderr.splitlines()
        assert done.returncode == 2, done
        assert len(lines) == 1 and lines[0].startswith("keel: "), done.stderr
        assert done.stdout == ""
        assert "Traceback" not in done.stderr and "internal error" not in done.stderr
        return lines[0]

    return check


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., Any]:
    """Rows of random ordinary tokens, [CLS] A [SEP] B [SEP], longest first."""

    def make(lengths: Sequence[int], size: int, seed: int = 0) -> Any:
        from keel.values import Rows

        source = np.random.default_rng(seed)
        lengths = tuple(sorted(lengths, reverse=True))
        total = sum(lengths)
        stops = np.cumsum(lengths)
        ids, special, segments = source.integers(5, size, total), np.zeros(total, bool), np.zeros(total, np.int64)
        for length, stop in zip(lengths, stops, strict=True):
            start, middle = stop - length, stop - length + length // 2
            ids[start], ids[[middle, stop - 1]] = 2, 3
            special[[start, middle, stop - 1]] = True
            segments[middle + 1 : stop] = 1
        answers = {name: source.integers(0, 2, len(lengths)) for name in ("next_sentence", "sentence_order")}
        keys = source.integers(0, 2**63, len(lengths)).astype(np.uint64)
        return Rows(ids, lengths, segments, special, np.ones(total, bool), keys, answers)

    return make


WHO = ("captain", "sailor", "carpenter", "gull")
WHERE = ("harbour", "island", "mast", "keel")


def sentence(source: random.Random) -> tuple[str, str, str]:
    who, place = source.choice(WHO), source.choice(WHERE)
    return f"The {who} remembers the {place} at dawn.", who, place


def table(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def classify(folder: Path, source: random.Random, count: int) -> Path:
    rows = [f"{text}\t{who}" for text, who, _ in (sentence(source) for _ in range(count))]
    return table(folder / "classify.tsv", "sentence\tlabel", rows)


def regress(folder: Path, source: random.Random, count: int) -> Path:
    rows = []
    for _ in range(count):
        one, other = sentence(source), sentence(source)
        rows.append(f"{one[0]},{other[0]},{WHO.index(one[1]) + 0.5 * WHERE.index(other[2])}")
    return table(folder / "regress.csv", "sentence1,sentence2,score", rows)


def tag(folder: Path, source: random.Random, count: int) -> Path:
    lines = []
    for _ in range(count):
        text, who, place = sentence(source)
        for word in [*text[:-1].split(), "."]:
            label = "B-WHO" if word == who else "B-PLACE" if word == place else "O"
            lines.append(f"{word} X {label}")
        lines.append("")
    path = folder / "tag.conll"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def answer(folder: Path, source: random.Random, count: int) -> Path:
    paragraphs = []
    for number in range(count):
        text, who, place = sentence(source)
        asked, gold = (("Who remembers?", who), ("What is remembered?", place))[number % 2]
        found = [{"text": gold, "answer_start": text.index(gold)}]
        paragraphs.append({"context": text, "qas": [{"id": str(number), "question": asked, "answers": found}]})
    path = folder / "answer.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def choose(folder: Path, source: random.Random, count: int) -> Path:
    rows = []
    for _ in range(count):
        choices, right = source.sample(WHO, 3), source.randrange(3)
        choices[right] = source.choice(WHERE)
        rows.append(json.dumps({"text": "Which is a place?", "choices": choices, "label": right}))
    path = folder / "choose.jsonl"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


FILES: dict[str, Callable[[Path, random.Random, int], Path]] = {
    "classify": classify,
    "regress": regress,
    "tag": tag,
    "answer": answer,
    "choose": choose,
}


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int, int], Path]:
    """`labelled("tag", seed, count)`: a file of so many examples."""

    def make(kind: str, seed: int, count: int) -> Path:
        return FILES[kind](tmp_path_factory.mktemp(kind), random.Random(seed), count)

    return make
