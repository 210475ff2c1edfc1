"""Small labelled files made of the sea text, one for each kind of task, and the models that were taught them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WHO = ("captain", "sailor", "carpenter", "gull")
WHERE = ("harbour", "island", "mast", "keel")
SETTINGS = (
    "data.length=48",
    "training.learning_rate=3e-3",
    "training.warmup=0.1",
    "training.epochs=6",
    "training.precision=fp32",
)


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


@pytest.fixture(scope="session")
def taught(
    finished_run: Path, labelled: Callable[[str, int, int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """`taught("tag")`: a model of this kind and the figures of its training; each is made once."""
    from keel.stages.finetune import finetune

    made: dict[tuple[str, ...], tuple[Path, dict[str, Any]]] = {}

    def teach(kind: str, *overrides: str) -> tuple[Path, dict[str, Any]]:
        key = (kind, *overrides)
        if key not in made:
            out = tmp_path_factory.mktemp("taught") / kind
            figures = finetune(
                str(finished_run),
                kind,
                train=str(labelled(kind, 1, 240)),
                dev=str(labelled(kind, 2, 60)),
                out=str(out),
                overrides=[*SETTINGS, *overrides],
                quiet=True,
            )
            made[key] = out, figures
        return made[key]

    return teach
