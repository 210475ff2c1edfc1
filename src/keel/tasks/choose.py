"""Multiple choice: select the ending that fits a text (SWAG; Zellers et al. 2018).

In: a table with the columns text, one column per choice (or a jsonl list under `choices`), and label: the index of the
correct choice, from 0. Learns: one score per (text, choice) pair; cross-entropy over an example's scores. Out: the
choice, and the probability of each.

Notable choice: the choices of an example are rows of the same batch but not always adjacent (rows are sorted by
length), so `prepare` maps rows to choices.

Shapes: R rows, E examples, C choices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from keel.errors import Rejected, UserError
from keel.in_memory import Source
from keel.interfaces import Backbone, CachedEncoder, Task, Tokenizer
from keel.report_tables import Plot, Table
from keel.tasks._pooled_head import PooledConfig, PooledObjective
from keel.tasks._scoring import Variety, Worst
from keel.tasks._text_rows import TextExample, text_windows
from keel.text.labelled import LabelledData, as_text, find_columns
from keel.text.tables import Record, column_names, read_table
from keel.values import Batch, Evaluation, ExampleFile, Rows, Score, Scorer, TaskNeeds, Truncation, Usage, Window

USUAL_CHOICES = ("ending0", "choice0", "choice1", "choices", "endings", "options")
NONE = float("-inf")


class ChooseConfig(PooledConfig):
    kind: Literal["choose"] = "choose"


@dataclass(frozen=True)
class ChoiceExample:
    text: str
    choices: tuple[str, ...]
    answer: int | None
    where: str = ""


class Choose(Task):
    Config = ChooseConfig
    needs = TaskNeeds(keep_together=True, long=("head", "tail", "head-tail"))
    usage = Usage("--file choices.jsonl", '("A text.", ["one choice", "another"])', several_texts=True)
    config: ChooseConfig
    data: LabelledData

    def open(self, source: Source, labelled: bool = True) -> ExampleFile:
        data = _find_choices(source, find_columns(source, self.data, ("text", "label")))
        names = data.choices or []
        columns = {"text": data.text, **{f"choice {n}": name for n, name in enumerate(names)}}
        if labelled:
            columns["label"] = data.label
        for role, name in columns.items():
            if name is None:
                raise UserError(f"{source}: which column holds the {role}? Choose with --{role}")
        return ExampleFile(lambda: (_from_row(r, len(names), labelled) for r in read_table(source, columns)), data)

    def example(self, given: Any) -> ChoiceExample:
        text, choices = given if not isinstance(given, str) and len(given) == 2 else (given, ())
        if isinstance(choices, str) or len(choices) < 2:
            raise UserError(f"a text and a list of choices are needed, not {str(given)[:60]!r}")
        return ChoiceExample(text, tuple(choices), None)

    def objective(self, backbone: Backbone) -> ChooseObjective:
        return ChooseObjective(self.config, backbone)

    def windows(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        pairs = [TextExample((e.text, choice)) for e in examples for choice in e.choices]
        of = [(number, place) for number, e in enumerate(examples) for place in range(len(e.choices))]
        # A choice must be a single row: several windows of one choice would compete with the other choices.
        data = self.data
        if data.long.strategy == "windows":
            data = data.model_copy(update={"long": data.long.model_copy(update={"strategy": "head"})})
        windows, truncation = text_windows(pairs, tokenizer, data)
        rows = []
        for window in windows:
            number, place = of[window.example]
            answers = {"choose.example": number, "choose.place": place, "choose.right": examples[number].answer or 0}
            rows.append(replace(window, example=number, answers=answers, place=place))
        return rows, truncation

    def answer(
        self, examples: Sequence[ChoiceExample], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        scores = [[NONE] * len(e.choices) for e in examples]
        for window, output in zip(windows, outputs, strict=True):
            scores[window.example][window.place] = float(output[0])
        answers = []
        for example, row in zip(examples, scores, strict=True):
            chances = torch.tensor(row).softmax(0).tolist()
            best = int(np.argmax(chances))
            answers.append(
                {"choice": best, "text": example.choices[best], "probability": chances[best], "probabilities": chances}
            )
        return answers

    def scorer(self) -> ChooseScorer:
        return ChooseScorer()


class ChooseScorer(Scorer):
    def __init__(self) -> None:
        self.variety, self.worst = Variety(), Worst()
        self.examples = self.right = 0
        self.gold_counts = Counter[int | None]()

    def gold(self, example: ChoiceExample) -> Any:
        return example.answer

    def update(self, examples: Sequence[ChoiceExample], answers: Sequence[dict[str, Any]]) -> None:
        self.variety.update((e.answer for e in examples), (a["choice"] for a in answers))
        wrong = [(e, a) for e, a in zip(examples, answers, strict=True) if e.answer != a["choice"]]
        self.examples += len(examples)
        self.gold_counts.update(e.answer for e in examples)
        self.right += len(examples) - len(wrong)
        self.worst.update(
            (-a["probability"], (e.text, e.choices[e.answer or 0], a["text"], a["probability"], e.where))
            for e, a in wrong
        )

    def compute(self) -> Evaluation:
        accuracy = self.right / self.examples if self.examples else math.nan
        baseline = max(self.gold_counts.values(), default=0) / max(1, self.examples)
        return Evaluation({"accuracy": accuracy}, "accuracy", self.variety.constant, baseline, self._details)

    def _details(self) -> list[Table | Plot]:
        return [Table("Worst errors", ("text", "gold", "predicted", "probability", "where"), self.worst.rows)]


class ChooseObjective(PooledObjective):
    name = "choose"

    def __init__(self, config: ChooseConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone, outputs=1)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        example, place, right = (rows.answers[f"choose.{name}"] for name in ("example", "place", "right"))
        numbers, of_row = np.unique(example, return_inverse=True)
        table = np.full((len(numbers), int(place.max()) + 1), -1)
        table[of_row, place] = np.arange(len(of_row))
        answers = np.zeros(len(numbers), np.int64)
        answers[of_row] = right
        return rows, {"choose.rows": table, "choose.answers": answers}

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        rows, answers = batch.targets["choose.rows"], batch.targets["choose.answers"]
        scores = self.predict(encoder, batch).float().squeeze(1)
        logits = scores[rows.clamp_min(0)].masked_fill(rows < 0, NONE)  # (E, C): examples may have fewer choices
        loss = F.cross_entropy(logits, answers, reduction="sum")
        return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), answers.shape[0])}


def _find_choices(path: Source, data: LabelledData) -> LabelledData:
    if data.choices:
        return data
    known = column_names(path)
    first = next((name for name in USUAL_CHOICES if name in known), None)
    if first is None:
        raise UserError(f"{path}: which columns hold the choices? Choose with --choice, once for each")
    stem = first.rstrip("0123456789")
    numbered = [name for name in known if name.removeprefix(stem).isdecimal() and name.startswith(stem)]
    ordered = sorted(numbered, key=lambda name: int(name.removeprefix(stem)))  # a label is a choice's number
    return data.model_copy(update={"choices": ordered or [first]})


def _from_row(record: Record | Rejected, columns: int, labelled: bool) -> ChoiceExample | Rejected:
    if isinstance(record, Rejected):
        return record
    example = _from_record(record, columns)
    reason = _reason_to_reject(example, labelled, record.fields.get("label"))
    return Rejected(record.file, record.line, reason) if reason else example


def _from_record(record: Record, columns: int) -> ChoiceExample:
    """An example from a row whose choices are in `columns` columns, or in one that holds a list."""
    given = [record.fields[f"choice {n}"] for n in range(columns)]
    if len(given) == 1 and isinstance(given[0], list):
        given = given[0]
    return ChoiceExample(
        as_text(record.fields["text"]) or "",
        tuple(as_text(choice) or "" for choice in given),
        _parse_choice(record.fields.get("label")),
        record.where,
    )


def _parse_choice(label: Any) -> int | None:
    text = str(label).strip()
    return int(text) if text.isdecimal() else None


def _reason_to_reject(example: ChoiceExample, labelled: bool, label: Any) -> str:
    if not example.text.strip() or any(not choice.strip() for choice in example.choices):
        return "empty text or choice"
    if len(example.choices) < 2:
        return "fewer than two choices"
    if labelled and (example.answer is None or example.answer >= len(example.choices)):
        return f"label {str(label)[:20]!r} is not the index of a choice (from 0)"
    return ""
