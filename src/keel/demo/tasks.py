"""Four tasks made from the demo's text, and how much pretraining improves each.

In: the demo's text with its paragraphs, packages and code marks. Out: labelled files for four tasks; then, for each,
the score after fine-tuning the pretrained model, after fine-tuning the same model untrained, and of always predicting
the most frequent answer.

package  which package a paragraph was written for             classify
follows  does this paragraph follow that one in a docstring     classify, pairs
code     which words are code                                   tag
default  what is the default, what is raised                    answer

Notable choice: the split is by document, so that no development paragraph has neighbours in the training data.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keel.stages.finetune import finetune

PACKAGES = 8
TRAIN, DEV = 1000, 300
SETTINGS = (
    "data.length=96",
    "training.epochs=3",
    "training.batch_size=16",
    "training.learning_rate=5e-4",
    "training.checkpoint_steps=100000",
)
VALUE = r"None|True|False|-?\d[\d.]*\d|-?\d|'[^' ]+'|\"[^\" ]+\""
ASKED = (
    ("What is the default?", re.compile(rf"\b(?:default is|defaults to|default value is|by default,? is) ({VALUE})")),
    ("What is raised?", re.compile(r"\b(?:raises?|raised|raising) (?:an? |the )?(\w+(?:Error|Exception|Warning))")),
)


@dataclass(frozen=True)
class Document:
    package: str
    paragraphs: list[str]
    code: list[list[list[int]]]


def make_tasks(text: Path, folder: Path) -> dict[str, str]:
    """Writes `<task>/train` and `<task>/dev`; task -> kind."""
    documents = [_document(json.loads(line)) for line in text.read_text(encoding="utf-8").splitlines()]
    source = random.Random(1)
    source.shuffle(documents)
    cut = len(documents) // 5
    parts = {"dev": documents[:cut], "train": documents[cut:]}
    packages = [name for name, _ in Counter(d.package for d in documents).most_common(PACKAGES)]
    for part, some in parts.items():
        count = TRAIN if part == "train" else DEV
        _lines(folder / "package" / f"{part}.jsonl", _package_rows(some, packages), count, source)
        _lines(folder / "follows" / f"{part}.jsonl", _follows_rows(some, source), count, source)
        _lines(folder / "code" / f"{part}.jsonl", _code_rows(some), count, source)
        _questions(folder / "default" / f"{part}.json", some, count, source)
    return {"package": "classify", "follows": "classify", "code": "tag", "default": "answer"}


def compare(
    folder: Path, tasks: dict[str, str], models: dict[str, str], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Fine-tunes each model on each task; one row of scores per task."""
    rows = []
    for name, kind in tasks.items():
        ending = "json" if kind == "answer" else "jsonl"
        train, dev = (str(folder / name / f"{part}.{ending}") for part in ("train", "dev"))
        row: dict[str, Any] = {"task": name}
        for label, model in models.items():
            out = str(folder / name / label)
            result = finetune(model, kind, train=train, dev=dev, out=out, overrides=SETTINGS, quiet=True)
            row |= {"figure": result["primary_metric"], label: result[result["primary_metric"]]}
        row["most frequent"] = _most_frequent(Path(dev), kind)
        say(
            f"{name} ({row['figure']}): most frequent answer {row['most frequent']:.3f}, "
            + ", ".join(f"{label} {row[label]:.3f}" for label in models)
        )
        rows.append(row)
    return rows


def _document(record: dict[str, Any]) -> Document:
    return Document(record["source"].split("/")[0], record["text"].split("\n"), record["code"])


def _package_rows(documents: list[Document], packages: list[str]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if document.package in packages:
            for paragraph in document.paragraphs:
                yield {"text": paragraph, "label": document.package}


def _follows_rows(documents: list[Document], source: random.Random) -> Iterator[dict[str, Any]]:
    for document in documents:
        for first, second in zip(document.paragraphs, document.paragraphs[1:], strict=False):
            follows = source.random() < 0.5
            other = source.choice(source.choice(documents).paragraphs)
            yield {"text": first, "pair": second if follows else other, "label": "yes" if follows else "no"}


def _code_rows(documents: list[Document]) -> Iterator[dict[str, Any]]:
    for document in documents:
        for paragraph, code in zip(document.paragraphs, document.code, strict=True):
            if code:
                yield {"text": paragraph, "label": [[a, b, "CODE"] for a, b in code if a < b]}


def _questions(path: Path, documents: list[Document], count: int, source: random.Random) -> None:
    questions = [
        {"context": paragraph, "question": question, "text": match[1], "start": match.start(1)}
        for document in documents
        for paragraph in document.paragraphs
        for question, pattern in ASKED
        if (match := pattern.search(paragraph))
    ]
    chosen = source.sample(questions, min(count, len(questions)))
    paragraphs = [
        {
            "context": a["context"],
            "qas": [
                {
                    "id": str(number),
                    "question": a["question"],
                    "answers": [{"text": a["text"], "answer_start": a["start"]}],
                }
            ],
        }
        for number, a in enumerate(chosen)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")


def _lines(path: Path, rows: Iterator[dict[str, Any]], count: int, source: random.Random) -> None:
    found = list(rows)
    chosen = source.sample(found, min(count, len(found)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen), encoding="utf-8")


def _most_frequent(dev: Path, kind: str) -> float:
    """The score of always predicting the most frequent answer; for tags that is no entity, which scores 0."""
    if kind == "tag":
        return 0.0
    if kind == "answer":
        articles = json.loads(dev.read_text(encoding="utf-8"))["data"]
        given = [q["answers"][0]["text"] for a in articles for p in a["paragraphs"] for q in p["qas"]]
    else:
        given = [json.loads(line)["label"] for line in dev.read_text(encoding="utf-8").splitlines()]
    return Counter(given).most_common(1)[0][1] / len(given)
