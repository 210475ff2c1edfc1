"""What fine-tuning and evaluation write into their folders: answers, rejected rows, tables for the report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from keel.files.folders import write_file
from keel.finetuning.labelled import REJECTED
from keel.learner.learner import Learner
from keel.report_tables import Plot, Table
from keel.values import Window

ANSWERS = "answers.jsonl"
RESULT = "result.json"


def write_answers(
    folder: Path,
    examples: Sequence[Any],
    gold: Sequence[Any],
    answers: Sequence[dict[str, Any]],
    rejected: Sequence[Any],
) -> None:
    """Writes each answer with the gold answer and the example's place in its file; and the rejected rows."""
    rows = zip(examples, gold, answers, strict=True)
    _write_lines(
        folder / ANSWERS, ({"where": example.where, "gold": right, **answer} for example, right, answer in rows)
    )
    _write_lines(folder / REJECTED, (asdict(bad) for bad in rejected))


def _write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    write_file(path, "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes `result.json`; numbers that are not finite become null, because JSON has none."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in result.items()}
    write_file(folder / RESULT, json.dumps(finite, indent=2))


def scores_by_label(details: Sequence[Table | Plot]) -> dict[str, float]:
    """F1 of each label or entity type, from the report's table."""
    named = (table for table in details if isinstance(table, Table) and table.columns[0] in ("label", "type"))
    tables = (table for table in named if "F1" in table.columns)
    return {str(row[0]): float(row[list(table.columns).index("F1")]) for table in tables for row in table.rows}


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
