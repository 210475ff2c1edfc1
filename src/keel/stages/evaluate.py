"""`keel evaluate`: the metrics of a fine-tuned model on labelled data; `keel predict`: its answers.

In: a model folder and a file. Out: the task's metrics, and a folder with the answers and a report page; with
`long="all"`, the metrics of each strategy for long texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.finetuning.labelled import say_oddities
from keel.finetuning.results import write_answers
from keel.folders import check_free, write_folder
from keel.inference.model import Model
from keel.inference.tasks import answer, open_task
from keel.interfaces import Task
from keel.learner.windows import outputs
from keel.reporting.report import write_report
from keel.text.long_text import STRATEGIES
from keel.values import Examples, Judgement, Truncation


def evaluate(
    model: str,
    data: str,
    *,
    columns: dict[str, Any] | None = None,
    long: str | None = None,
    strict: bool = False,
    out: str | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The metrics on a file; `out` is a folder for the answers (one JSON object per line) and the report page."""
    if out and long == "all":
        raise UserError("--long all compares metrics and writes no answers; omit --out, or choose one strategy")
    if out:
        check_free(Path(out))
    loaded = open_task(model, columns, allow_pickle, device)
    found = _read(loaded, data)
    if strict and found.rejected:
        raise UserError(f"{found.rejected[0]} ({len(found.rejected)} such rows in all)")
    if not found.examples:
        raise UserError(f"{data}: no row can be used{': ' + found.rejected[0].reason if found.rejected else ''}")
    say_oddities(found.notes, found.rejected, report or (lambda _: None))
    result: dict[str, Any] = {"model": model, "examples": len(found.examples), "rejected": len(found.rejected)}
    if long == "all":
        return result | {"strategies": [_judge(loaded, found.examples, strategy)[0] for strategy in STRATEGIES]}
    figures, answers, judged = _judge(loaded, found.examples, long)
    if out:
        with write_folder(Path(out), {"keel": "evaluate", "model": model, "data": data}) as folder:
            write_answers(folder, found.examples, judged.gold, answers, found.rejected)
            write_report(
                folder,
                facts={"title": f"{Path(model).name} on {Path(data).name}", **result, **figures},
                details=judged.details(),
                figures=judged.metrics,
                answers=model,
                usage=loaded.need_task().usage,
            )
    return result | figures


def predict(
    model: str,
    data: str,
    *,
    columns: dict[str, Any] | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """The answers for the rows of a file, in order. An unreadable row is an error, so that answers stay aligned."""
    loaded = open_task(model, columns, allow_pickle, device)
    found = _read(loaded, data, labelled=False)
    if found.rejected:
        raise UserError(f"{found.rejected[0]} ({len(found.rejected)} such rows in all)")
    return answer(loaded, found.examples, report)


def _read(loaded: Model, path: str, labelled: bool = True) -> Examples:
    """The examples of a file; the model's task is set to the columns of the file."""
    task = loaded.need_task()
    found = task.read(path, labelled)
    loaded.task = type(task)(task.config, found.data)
    return found


def _judge(
    loaded: Model, examples: Sequence[Any], strategy: str | None
) -> tuple[dict[str, Any], list[dict[str, Any]], Judgement]:
    task: Task = loaded.need_task()
    if strategy:
        if strategy not in STRATEGIES:
            raise UserError(f"--long {strategy}: choose one of {', '.join(STRATEGIES)}, or all")
        task = task.replace(long=task.data.long.model_copy(update={"strategy": strategy}))
    windows, truncation = task.windows(examples, loaded.tokenizer)
    answers = task.answer(examples, windows, outputs(loaded.learner, windows, loaded.tokenizer, loaded.device))
    judged = task.judge(examples, answers)
    return {"long": task.data.long.strategy, **_shares(truncation), **judged.metrics}, answers, judged


def _shares(truncation: Truncation) -> dict[str, float]:
    return {
        "truncated_texts": truncation.truncated_texts / max(1, truncation.texts),
        "truncated_tokens": truncation.truncated_tokens / max(1, truncation.tokens),
    }
