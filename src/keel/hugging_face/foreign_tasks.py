"""A task's entries in config.json in the format of `transformers`, in both directions.

In: a task setup. Out: labels and problem type for config.json; and back, for folders without Keel's entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.hugging_face.family import Family
from keel.learner.task_setup import TaskSetup, read_setup

PROBLEMS = {"classify": "single_label_classification", "regress": "regression"}
MULTI_LABEL = "multi_label_classification"


def task_entries(setup: TaskSetup) -> dict[str, Any]:
    """Labels and problem type."""
    task = setup.task.config.model_dump()
    entries: dict[str, Any] = {}
    labels = task.get("labels") or (["LABEL_0"] if setup.kind == "regress" else None)
    if labels:
        entries["id2label"] = {str(number): name for number, name in enumerate(labels)}
        entries["label2id"] = {name: number for number, name in enumerate(labels)}
    if setup.kind in PROBLEMS:
        entries["problem_type"] = MULTI_LABEL if task.get("multi_label") else PROBLEMS[setup.kind]
    return entries


def setup_from(published: dict[str, Any], family: Family, config: Any, folder: Path) -> TaskSetup | None:
    """The task that a folder of `transformers` was fine-tuned for; None: it has no task head."""
    made = str((published.get("architectures") or [""])[0])
    kinds = [kind for kind, (architecture, _) in family.heads.items() if architecture == made]
    if not kinds:
        return None
    labels = _labels(published.get("id2label") or {}, folder)
    kind = kinds[0]
    if kind == "classify" and (published.get("problem_type") == "regression" or len(labels) == 1):
        kind = "regress"
    task: dict[str, Any] = {"kind": kind}
    if kind in ("classify", "tag"):
        task["labels"] = labels or ["LABEL_0", "LABEL_1"]  # the default of transformers
    if published.get("problem_type") == MULTI_LABEL:
        task["multi_label"] = True
    if kind == "tag":
        task["entities"] = "O" in labels
    return read_setup({"task": task, "data": {"length": min(512, config.max_length)}}, folder / "config.json")


def _labels(given: Any, folder: Path) -> list[str]:
    try:
        return [str(name) for _, name in sorted(given.items(), key=lambda item: int(item[0]))]
    except (AttributeError, ValueError, TypeError):
        raise UserError(f"{folder / 'config.json'}: id2label does not map numbers to labels") from None
