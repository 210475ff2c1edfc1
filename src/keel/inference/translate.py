"""`keel translate`: translates texts, and computes cross-attention maps.

In: a model folder, texts. Out: translations in the given order; for one text its cross-attention weights.

Notable choice: a blank line of a file stays a blank line, so that line n of the output is line n of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keel.errors import UserError
from keel.explain.translation import CrossAttention, cross_attention
from keel.inference.model import Model
from keel.inference.tasks import describe_truncation
from keel.inference.work import Work
from keel.tasks.translate import MOST_PENALTY, TranslateObjective
from keel.values import Truncation


def open_translator(
    path: str,
    beam: int | None = None,
    length_penalty: float | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
) -> Model:
    """A translator; `beam` and `length_penalty` replace the settings that it was trained with."""
    model = Model.load(path, allow_pickle, device)
    if model.task is None or model.task.config.kind != "translate":
        raise UserError(f"{path}: this model does not translate; train one with `keel finetune ... translate`")
    if (beam is not None and beam < 1) or (length_penalty is not None and not 0 <= length_penalty <= MOST_PENALTY):
        raise UserError(f"the beam size must be at least 1, and the length penalty between 0 and {MOST_PENALTY:g}")
    wanted = {"beam_size": beam, "length_penalty": length_penalty}
    changes = {name: value for name, value in wanted.items() if value is not None}
    model.task = model.task.replace(changes)
    _objective(model).config = model.task.config
    return model


def translate(model: Model, texts: Sequence[str], report: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """One answer for each text; a blank text has a blank translation. `report` gets a line about truncated texts."""
    return [answer for group in translate_groups(model, [texts], report) for answer in group]


def translate_groups(
    model: Model, groups: Iterable[Sequence[str]], report: Callable[[str], None] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """The same for each group of texts, as soon as it is known."""
    total, task = Truncation(), model.need_task()
    try:
        for texts in groups:
            given = (task.example(text) for text in texts if text.strip())
            answers = list[dict[str, Any]]()
            for group in model.answer_groups(given):
                answers += group.answers
                total += group.truncation
            yield _with_blanks(texts, answers)
    finally:
        if total.truncated_texts and report:
            report(describe_truncation(total, task.data))


def translate_work(model: Model, texts: Sequence[str]) -> Work[list[dict[str, Any]]]:
    """The translations of some texts as work."""
    task = model.need_task()
    work = model.answer_work([task.example(text) for text in texts if text.strip()])

    def finish(outputs: list[Any]) -> list[dict[str, Any]]:
        return _with_blanks(texts, work.finish(outputs).answers)

    return Work(work.key, work.rows, work.sizes, work.compute, finish)


def _with_blanks(texts: Sequence[str], answers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found = iter(answers)
    return [next(found) if text.strip() else {"translation": "", "score": 0.0} for text in texts]


def attention(model: Model, text: str) -> tuple[str, CrossAttention]:
    """The translation of a text, and the cross-attention of each of its tokens and its [SEP]."""
    found = cross_attention(model, text)
    return found.translation, found


def _objective(model: Model) -> TranslateObjective:
    objective = model.learner.objectives["translate"]
    assert isinstance(objective, TranslateObjective)
    return objective
