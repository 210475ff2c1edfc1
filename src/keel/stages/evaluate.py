"""`keel evaluate`: the metrics of a fine-tuned model on labelled data.

In: a model folder and a file. Out: the task's metrics, and a folder with the answers and a report page; with
`long="all"`, the metrics of each strategy for long texts.

Notable choice: examples are read, answered, scored and written in groups, so memory does not grow with the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.files.folders import check_free, write_folder
from keel.finetuning.labelled import check_strategy, say_oddities
from keel.finetuning.results import answer_files
from keel.in_memory import as_source
from keel.inference.model import Model
from keel.inference.tasks import open_examples, open_task, survey, usable
from keel.interfaces import Task
from keel.reporting.report import write_report
from keel.text.long_text import STRATEGIES
from keel.values import Evaluation, ExampleFile, Truncation


def evaluate(
    model: str,
    data: Any,
    *,
    columns: dict[str, Any] | None = None,
    long: str | None = None,
    strict: bool = False,
    out: str | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The metrics on a file, or on rows in memory; `out` is a folder for the answers, as JSON lines, and the report."""
    data = as_source(data, "data")
    if out and long == "all":
        raise UserError("--long all compares metrics and writes no answers; omit --out, or choose one strategy")
    if out:
        check_free(Path(out))
    loaded = open_task(model, columns, allow_pickle, device)
    file = open_examples(loaded, data)
    found = survey(file)
    if strict and found.rejected:
        raise UserError(f"{found.first_rejected[0]} ({found.rejected} such rows in all)")
    if not found.examples:
        raise UserError(f"{data}: no row can be used{': ' + found.first_rejected[0].reason if found.rejected else ''}")
    strategies = _strategies(loaded.need_task(), long, report)
    say_oddities(found.notes, found.first_rejected, found.rejected, report or (lambda _: None))
    result: dict[str, Any] = {"model": model, "examples": found.examples, "rejected": found.rejected}
    if strategies:
        return result | {"strategies": [_score(loaded, file, strategy)[0] for strategy in strategies]}
    if not out:
        return result | _score(loaded, file, long)[0]
    with write_folder(Path(out), {"keel": "evaluate", "model": model, "data": str(data)}) as folder:
        figures, evaluation = _score(loaded, file, long, folder)
        write_report(
            folder,
            facts={"title": f"{Path(model).name} on {Path(str(data)).name}", **result, **figures},
            details=evaluation.details(),
            figures=evaluation.metrics,
            answers=model,
            usage=loaded.need_task().usage,
        )
    return result | figures


def _score(
    loaded: Model, file: ExampleFile, strategy: str | None, folder: Path | None = None
) -> tuple[dict[str, Any], Evaluation]:
    """The metrics on a file, with this strategy for long texts; the answers are written to the folder, if given."""
    before = loaded.need_task()
    task: Task = before
    if strategy:
        task = task.replace(long=task.data.long.model_copy(update={"strategy": strategy}))
    scorer, lost = task.scorer(), Truncation()
    loaded.task = task
    try:
        with answer_files(folder, scorer) if folder else contextlib.nullcontext() as files:
            for group in loaded.answer_groups(usable(file, files.reject if files else lambda row: None)):
                scorer.update(group.examples, group.answers)
                lost += group.truncation
                if files:
                    files.write(group.examples, group.answers)
    finally:
        loaded.task = before
    evaluation = scorer.compute()
    known, used = task.needs.long, task.data.long.strategy
    figures = {
        "primary_metric": evaluation.primary,
        "long": used if used in known else known[0],
        **_shares(lost),
        **evaluation.metrics,
    }
    return figures | ({"majority": evaluation.baseline} if evaluation.baseline else {}), evaluation


def _strategies(task: Task, long: str | None, report: Callable[[str], None] | None) -> tuple[str, ...]:
    """The strategies to compare, for `all`; none otherwise. Raises if the task does not have the given one."""
    known, kind = task.needs.long, task.config.kind
    if long is None or long in known:
        return ()
    if long not in (*STRATEGIES, "all"):
        raise UserError(f"--long {long}: choose one of {', '.join(STRATEGIES)}, or all")
    if long != "all":
        check_strategy(task, long)
    if len(known) < len(STRATEGIES) and report:
        missing = ", ".join(name for name in STRATEGIES if name not in known)
        report(f"the task {kind} handles long texts by {', '.join(known)} only; {missing}: not available")
    return known


def _shares(truncation: Truncation) -> dict[str, float]:
    return {
        "truncated_texts": truncation.truncated_texts / max(1, truncation.texts),
        "truncated_tokens": truncation.truncated_tokens / max(1, truncation.tokens),
    }
