"""`keel evaluate`: how good is a fine-tuned model on labelled data; `keel predict`: what does it answer.

In: a model folder and a file. Out: the task's figures, and a folder with the answers and a report page; with
`long="all"` the figures of every way to treat long texts, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keel.checkpoint import check_free, write_folder
from keel.errors import UserError
from keel.interfaces import Cut
from keel.reporting.report import write_report
from keel.stages.finetune import ANSWERS, REJECTED, describe_cut, say_oddities, with_gold, write_lines
from keel.stages.model import Model
from keel.text.long_text import STRATEGIES
from keel.training.windows import outputs


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
    """The figures on a file; `out` is a folder for the answers, one JSON object a line, and the report page."""
    if out and long == "all":
        raise UserError("--long all compares figures and writes no answers; leave --out away, or name one strategy")
    if out:
        check_free(Path(out))
    loaded = open_task(model, columns, allow_pickle, device)
    loaded.task = loaded.task.bind(data)
    examples, rejected = loaded.task.read(data)
    if strict and rejected:
        raise UserError(f"{rejected[0]} ({len(rejected)} such rows in all)")
    if not examples:
        raise UserError(f"{data}: no row can be used{': ' + rejected[0].reason if rejected else ''}")
    say_oddities(loaded.task, examples, rejected, report or (lambda _: None))
    result: dict[str, Any] = {"model": model, "examples": len(examples), "rejected": len(rejected)}
    if long == "all":
        return result | {"strategies": [_figures(loaded, examples, strategy)[0] for strategy in STRATEGIES]}
    figures, answers = _figures(loaded, examples, long)
    if out:
        with write_folder(Path(out), {"keel": "evaluate", "model": model, "data": data}) as folder:
            write_lines(
                folder / ANSWERS, [with_gold(loaded.task, *pair) for pair in zip(examples, answers, strict=True)]
            )
            write_lines(folder / REJECTED, [asdict(bad) for bad in rejected])
            facts = {"title": f"{Path(model).name} on {Path(data).name}", **result, **figures}
            scores = loaded.task.score(examples, answers)
            details = loaded.task.details(examples, answers)
            write_report(folder, facts=facts, details=details, figures=scores, answers=model, usage=loaded.task.usage)
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
    """The answers for the rows of a file, in their order. A row that cannot be read is an error: no answer is moved."""
    loaded = open_task(model, columns, allow_pickle, device)
    loaded.task = loaded.task.bind(data)
    examples, rejected = loaded.task.read(data, labelled=False)
    if rejected:
        raise UserError(f"{rejected[0]} ({len(rejected)} such rows in all)")
    return answer(loaded, examples, report)


def answer(loaded: Model, examples: Sequence[Any], report: Callable[[str], None] | None) -> list[dict[str, Any]]:
    """Answers, after saying what of the texts does not fit."""

    def tell(cut: Cut) -> None:
        if cut.cut_texts and report:
            report(describe_cut(cut, loaded.task.data))

    return loaded.answer(examples, tell)


def open_task(
    model: str, columns: dict[str, Any] | None = None, allow_pickle: bool = False, device: str = "auto"
) -> Model:
    """A fine-tuned model, with other columns than those it was trained with where they are given."""
    loaded = Model.load(model, allow_pickle, device)
    if loaded.task is None:
        raise UserError(f"{model}: this model has not been fine-tuned; make one with keel finetune")
    given = {name: value for name, value in (columns or {}).items() if value is not None}
    if given:
        loaded.task = type(loaded.task)(loaded.task.config, loaded.task.data.model_copy(update=given))
    return loaded


def _figures(loaded: Model, examples: Sequence[Any], strategy: str | None) -> tuple[dict[str, Any], list[Any]]:
    task = loaded.task
    if strategy:
        if strategy not in STRATEGIES:
            raise UserError(f"--long {strategy}: choose one of {', '.join(STRATEGIES)}, or all")
        long = task.data.long.model_copy(update={"strategy": strategy})
        task = type(task)(task.config, task.data.model_copy(update={"long": long}))
    windows, cut = task.windows(examples, loaded.tokenizer)
    answers = task.answer(examples, windows, outputs(loaded.learner, windows, loaded.tokenizer, loaded.device))
    return {"long": task.data.long.strategy, **_shares(cut), **task.score(examples, answers)}, answers


def _shares(cut: Cut) -> dict[str, float]:
    return {"cut_texts": cut.cut_texts / max(1, cut.texts), "cut_tokens": cut.cut_tokens / max(1, cut.tokens)}
