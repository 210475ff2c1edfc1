"""What fine-tuning and evaluation write into their folders: answers, rejected rows, tables for the report."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from keel.errors import Rejected
from keel.files.folders import replacing, write_file
from keel.finetuning.labelled import REJECTED
from keel.learner.learner import Learner
from keel.report_tables import Table
from keel.values import Scorer, Window

ANSWERS = "answers.jsonl"
RESULT = "result.json"


class AnswerFiles:
    """Each answer with the gold answer and the example's place in its file; and the rejected rows."""

    def __init__(self, answers: TextIO, rejected: TextIO, scorer: Scorer) -> None:
        self.answers, self.rejected, self.scorer = answers, rejected, scorer

    def write(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> None:
        for example, answer in zip(examples, answers, strict=True):
            entry = {"where": example.where, "gold": self.scorer.gold(example), **answer}
            self.answers.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def reject(self, row: Rejected) -> None:
        self.rejected.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")


@contextlib.contextmanager
def answer_files(folder: Path, scorer: Scorer) -> Iterator[AnswerFiles]:
    """Writes both files of a folder; they appear when the block ends without an error."""
    with _writing(folder / ANSWERS) as answers, _writing(folder / REJECTED) as rejected:
        yield AnswerFiles(answers, rejected, scorer)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[TextIO]:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
        yield file


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes `result.json`; numbers that are not finite become null, because JSON has none."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in result.items()}
    write_file(folder / RESULT, json.dumps(finite, indent=2))


def mix_tables(learner: Learner) -> list[Table]:
    """The weight of each layer of a frozen encoder in a learned mix."""
    mixes = learner.frozen.mixes() if learner.frozen is not None else {}
    if not mixes:
        return []
    count = len(next(iter(mixes.values()))) - 1
    columns = ("mix", *(f"layer {number}" for number in range(count)), "times")
    rows = [(name, *(f"{share:.3f}" for share in shares)) for name, shares in mixes.items()]
    return [
        Table(
            "Weights of the encoder's layers",
            columns,
            rows,
            "Layer 0 is the embeddings, without context. The mix is multiplied by the last column.",
        )
    ]


def length_table(windows: Sequence[Window]) -> Table:
    """Number of training rows by length, in bins whose width doubles."""
    lengths = np.array([len(window.ids) for window in windows])
    rows, low = [], 2
    while low <= lengths.max():
        inside = int(((lengths >= low) & (lengths < 2 * low)).sum())
        rows += [(f"{low} to {2 * low - 1}", inside)] if inside else []
        low *= 2
    return Table("Lengths of training rows", ("tokens", "rows"), rows)
