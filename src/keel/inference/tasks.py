"""Prediction with a fine-tuned model: opens it with its task, and answers examples.

In: a model folder, examples. Out: answers, and one line about texts that did not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keel.errors import UserError
from keel.inference.model import Model
from keel.text.labelled import LabelledData
from keel.values import Truncation


def open_task(
    model: str, columns: dict[str, Any] | None = None, allow_pickle: bool = False, device: str = "auto"
) -> Model:
    """A fine-tuned model; `columns` replace those that it was trained with."""
    loaded = Model.load(model, allow_pickle, device)
    if loaded.task is None:
        raise UserError(f"{model}: this model has not been fine-tuned; train one with keel finetune")
    given = {name: value for name, value in (columns or {}).items() if value is not None}
    if given:
        loaded.task = loaded.task.replace(**given)
    return loaded


def answer_groups(
    loaded: Model, groups: Iterable[Sequence[Any]], report: Callable[[str], None] | None
) -> Iterator[list[dict[str, Any]]]:
    """The answers of each group of examples, as soon as they are known; at the end a line about texts that did not fit,
    also if the reader stops before."""
    total = Truncation()
    try:
        for examples in groups:
            for answers, truncation in loaded.answer_groups(examples):
                total += truncation
                yield answers
    finally:
        if total.truncated_texts and report:
            report(describe_truncation(total, loaded.need_task().data))


def describe_truncation(truncation: Truncation, data: LabelledData) -> str:
    """One line about what did not fit; nothing is truncated silently."""
    if not truncation.truncated_texts:
        return f"all {truncation.texts:,} texts fit into rows of {data.length} tokens, or into their windows"
    texts = truncation.truncated_texts / truncation.texts
    tokens = truncation.truncated_tokens / truncation.tokens
    return (
        f"{100 * texts:.1f} % of the texts did not fit into rows of {data.length} tokens and were truncated "
        f"({data.long.strategy}); {100 * tokens:.1f} % of all tokens are lost"
    )
