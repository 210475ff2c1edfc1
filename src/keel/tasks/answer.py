"""Extractive question answering: find the answer span in a text (SQuAD 1 and 2; Rajpurkar et al. 2016, 2018).

In: SQuAD's json. Learns: start and end scores for each token; [CLS] means that the text has no answer (Devlin et al.
2018). Out: the answer, its character span, an n-best list, and, for data with unanswerable questions, whether there is
an answer.

Notable choices
- A long text is split into overlapping windows, each after the question; the best span over all windows wins.
- A window without the answer is trained to predict [CLS]; in prediction the score of [CLS] is the null score.
- The no-answer threshold is tuned on the development data, as in SQuAD 2's official scoring.

Shapes: T tokens, R rows, L longest row.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from keel.configs import TaskConfig
from keel.errors import Rejected, UserError
from keel.in_memory import Source
from keel.interfaces import Backbone, CachedEncoder, Objective, Task, Tokenizer
from keel.layers.dropout import Dropout
from keel.layers.pooling import row_of_token
from keel.metrics import answers as metrics
from keel.report_tables import Plot, Table
from keel.tasks._scoring import Variety, Worst
from keel.text.labelled import LabelledData, as_text
from keel.text.long_text import window_starts
from keel.text.squad import Question, read_question_rows, read_squad
from keel.text.tables import OBJECTS, Record, kind_of, read_table
from keel.text.word_spans import IDEOGRAPH
from keel.tokenizers.special_tokens import frame, framing
from keel.values import Batch, Evaluation, ExampleFile, Rows, Score, Scorer, TaskNeeds, Truncation, Usage, Window

CHINESE = re.compile(f"[{IDEOGRAPH}]")
NO_ANSWER = (0, 0)  # [CLS]
MAX_MARGIN = 1e4  # larger than any difference of scores
CANDIDATES = 20  # best starts and best ends that are combined into spans


class AnswerConfig(TaskConfig):
    kind: Literal["answer"] = "answer"
    unanswerable: bool | None = Field(None, description="questions may have no answer; null: as in the data")
    null_threshold: float = Field(0.0, description="a span must beat the null score by this; tuned on the dev data")
    max_answer_length: int = Field(30, ge=1, description="tokens")
    max_question_length: int = Field(64, ge=1, description="tokens; longer questions are truncated")
    n_best: int = Field(5, ge=1, description="answers listed")
    scoring: Literal["squad", "chinese"] | None = Field(None, description="null: chinese if most answers are Chinese")
    dropout: float = Field(0.0, ge=0, lt=1, description="before the head; the published BERT has none there")


@dataclass(frozen=True)
class ContextOffsets:
    """Maps a window's tokens to the text: the row position of the first context token, and each token's characters."""

    first: int
    offsets: list[tuple[int, int]]


class Answer(Task):
    Config = AnswerConfig
    needs = TaskNeeds(long=("windows",))
    usage = Usage('--pair "A text." "A question?"', '("A question?", "A text.")', several_texts=True)
    config: AnswerConfig
    data: LabelledData

    def open(self, source: Source, labelled: bool = True) -> ExampleFile:
        columns = {"text": self.data.text or "context", "pair": self.data.pair or "question"}
        if kind_of(source) == ".json":
            return ExampleFile(lambda: _labelled(read_squad(str(source), labelled), labelled), self.data, _notes)
        if labelled and kind_of(source) in OBJECTS:
            columns["label"] = self.data.label or "answers"
            return ExampleFile(lambda: _labelled(read_question_rows(source, columns), True), self.data, _notes)
        if labelled:
            raise UserError(
                f"{source}: labelled questions must be in SQuAD's .json format (or .json.gz), or rows with question, "
                "context and answers (.jsonl, .parquet)"
            )
        return ExampleFile(lambda: map(_from_record, read_table(source, columns)), self.data)

    def example(self, given: Any) -> Question:
        if isinstance(given, str) or len(given) != 2:
            raise UserError(f"a question and a text are needed, not {str(given)[:60]!r}")
        question, context = given
        return Question("", "", question, context, [], False, False)

    def fit_labels(self, examples: Sequence[Question]) -> Self:
        update: dict[str, Any] = {}
        if self.config.unanswerable is None:
            update["unanswerable"] = any(q.impossible for q in examples)
        if self.config.scoring is None:
            gold = "".join(text for q in examples for text, _ in q.answers)
            update["scoring"] = "chinese" if 2 * len(CHINESE.findall(gold)) > len(gold) else "squad"
        return self.replace(config=update)

    def tune(self, examples: Sequence[Question], answers: Sequence[dict[str, Any]]) -> Self:
        """The task with the no-answer threshold that gives the best F1 on these examples."""
        if not self.config.unanswerable:
            return self
        spans = [
            self._score(q, a["best"][0]["text"] if a["best"] else "") for q, a in zip(examples, answers, strict=True)
        ]
        nulls = [self._score(q, "") for q in examples]
        best = metrics.no_answer_threshold([a["margin"] for a in answers], spans, nulls)
        margin = max(-MAX_MARGIN, min(MAX_MARGIN, best.margin))  # JSON has no infinity for "never" and "always"
        return self.replace(config={"null_threshold": margin})

    def objective(self, backbone: Backbone) -> AnswerObjective:
        return AnswerObjective(self.config, backbone)

    def windows(self, examples: Sequence[Question], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        windows, truncation = [], Truncation()
        specials = framing(tokenizer, 2)
        encoded = tokenizer.encode([q.question for q in examples])
        text = None
        context: list[int] = []
        offsets: list[tuple[int, int]] = []
        for number, (question, ids) in enumerate(zip(examples, encoded, strict=True)):
            if question.context is not text:  # questions about the same text are adjacent
                text, (context, offsets) = question.context, tokenizer.encode_with_offsets(question.context)
            kept = ids[: min(self.config.max_question_length, (self.data.length - specials) // 2)]
            room = self.data.length - len(kept) - specials
            gold = _token_span(question, offsets)
            for start in window_starts(len(context), room, self.data.long.overlap):
                stop = min(len(context), start + room)
                first = len(kept) + specials - 1
                row = frame(tokenizer, [kept, np.asarray(context[start:stop], np.int64)])
                inside = gold is not None and start <= gold[0] and gold[1] < stop
                span = (gold[0] - start + first, gold[1] - start + first) if gold and inside else NO_ANSWER
                place = ContextOffsets(first, offsets[start:stop])
                windows.append(Window(*row, number, answers={"answer": np.array(span)}, place=place))
            truncation += Truncation(1, int(len(kept) < len(ids)), len(ids) + len(context), len(ids) - len(kept))
        return windows, truncation

    def answer(
        self, examples: Sequence[Question], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        candidates: list[list[tuple[float, int, int]]] = [[] for _ in examples]
        nulls = [float("inf")] * len(examples)
        for window, output in zip(windows, outputs, strict=True):
            nulls[window.example] = min(nulls[window.example], float(output[0].sum()))
            best = _spans(output, window.place, self.config.max_answer_length)
            candidates[window.example] += sorted(best, reverse=True)[: self.config.n_best]
        return [self._format_answer(q, spans, null) for q, spans, null in zip(examples, candidates, nulls, strict=True)]

    def _format_answer(self, question: Question, spans: list[tuple[float, int, int]], null: float) -> dict[str, Any]:
        best: dict[tuple[int, int], float] = {}
        for score, start, end in sorted(spans, reverse=True):
            best.setdefault((start, end), score)  # windows overlap: a span may occur twice
        ranked = list(best.items())[: self.config.n_best]
        scores = torch.tensor([score for _, score in ranked] + ([null] if self.config.unanswerable else []))
        chances = scores.softmax(0).tolist()
        listed = [
            {"text": question.context[start:end], "start": start, "end": end, "probability": chance, "score": score}
            for ((start, end), score), chance in zip(ranked, chances, strict=False)
        ]
        margin = ranked[0][1] - null if ranked else -MAX_MARGIN
        nothing = chances[-1] if chances else 1.0
        answer: dict[str, Any] = {"answer": "", "start": None, "end": None, "probability": nothing}
        if listed and not (self.config.unanswerable and margin < self.config.null_threshold):
            first = listed[0]
            answer = {"answer": first["text"], **{key: first[key] for key in ("start", "end", "probability")}}
        return {"id": question.id, **answer, "margin": margin, "best": listed}

    def scorer(self) -> AnswerScorer:
        return AnswerScorer(self._score)

    def _score(self, question: Question, guess: str) -> metrics.AnswerScore:
        return (metrics.cmrc if self.config.scoring == "chinese" else metrics.squad)(_gold(question) or [""], guess)


class AnswerScorer(Scorer):
    def __init__(self, score: Callable[[Question, str], metrics.AnswerScore]) -> None:
        self.score = score
        self.f1, self.exact, self.unanswerable = array("d"), array("d"), 0
        self.variety, self.worst = Variety(), Worst()

    def gold(self, example: Question) -> Any:
        return _gold(example)

    def update(self, examples: Sequence[Question], answers: Sequence[dict[str, Any]]) -> None:
        self.variety.update(map(_gold, examples), (a["answer"] for a in answers))
        errors = []
        for question, answer in zip(examples, answers, strict=True):
            score = self.score(question, answer["answer"])
            self.f1.append(score.f1)
            self.exact.append(score.exact)
            self.unanswerable += not question.answers
            gold = " / ".join(text for text, _ in question.answers) or "no answer"
            predicted, chance = answer["answer"] or "no answer", answer["probability"]
            errors.append(((score.f1, -chance), (question.question, gold, predicted, chance, score.f1, question.id)))
        self.worst.update(errors)

    def compute(self) -> Evaluation:
        means = {"f1": np.array(self.f1), "exact": np.array(self.exact)}
        figures = {name: float(np.mean(values)) if len(values) else math.nan for name, values in means.items()}
        baseline = self.unanswerable / max(1, len(self.f1))
        return Evaluation(figures, "f1", self.variety.constant, baseline, self._details)

    def _details(self) -> list[Table | Plot]:
        columns = ("question", "gold", "predicted", "probability", "F1", "id")
        return [Table("Worst errors", columns, self.worst.rows)]


class AnswerObjective(Objective):
    name = "answer"

    def __init__(self, config: AnswerConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(backbone.width, 2)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        return rows, {"answer.answers": rows.answers["answer"], "answer.counts": rows.lengths}

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(T, 2): each token's scores as the first and the last token of the answer."""
        scores: Tensor = self.out(self.dropout(encoder(batch).vectors))
        return scores

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        scores, answers = self.predict(encoder, batch).float(), batch.targets["answer.answers"]
        rows, longest = len(batch.lengths), max(batch.lengths)
        place = row_of_token(batch) * longest + batch.positions
        padded = scores.new_full((rows * longest, 2), float("-inf")).index_copy(0, place, scores)
        logits = padded.view(rows, longest, 2).transpose(1, 2)  # (R, 2, L)
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="sum") / 2
        right = (logits.argmax(2) == answers).all(1).sum()
        return {self.name: Score(loss, right, rows)}


def _labelled(rows: Iterator[Question | Rejected], labelled: bool) -> Iterator[Question | Rejected]:
    """Rejects questions without answers, and answers that do not occur in their text."""
    for row in rows:
        if isinstance(row, Rejected) or not labelled or row.answers or row.impossible:
            yield row
        else:
            yield Rejected(row.file, 0, f"question {row.id}: no answers")
        if isinstance(row, Question) and labelled:
            for text in row.dropped:
                yield Rejected(row.file, 0, f"question {row.id}: answer not in context: {text!r:.60}")


def _from_record(record: Record | Rejected) -> Question | Rejected:
    """A question without answers."""
    if isinstance(record, Rejected):
        return record
    question, context = (as_text(record.fields[role]) for role in ("pair", "text"))
    if question and context:
        return Question(record.file, str(record.line), question, context, [], False, False)
    return Rejected(record.file, record.line, "no question or no text")


def _notes(questions: Iterable[Question]) -> tuple[str, ...]:
    repaired = sum(q.repaired for q in questions)
    if not repaired:
        return ()
    return (f"{repaired:,} questions have an answer that does not begin at its answer_start; the text was searched",)


def _gold(question: Question) -> list[str]:
    return [text for text, _ in question.answers] + list(question.dropped)


def _token_span(question: Question, offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and last token of the first answer; None: no answer, or the tokenizer dropped all of it."""
    if not question.answers:
        return None
    text, start = question.answers[0]
    stop = start + len(text)
    inside = [n for n, (a, b) in enumerate(offsets) if a < stop and b > start]
    return (inside[0], inside[-1]) if inside else None


def _spans(output: np.ndarray, place: ContextOffsets, max_length: int) -> list[tuple[float, int, int]]:
    """The best (score, first character, last character + 1) of a window."""
    scores = output[place.first : place.first + len(place.offsets)]
    if not len(scores):
        return []
    firsts, lasts = (np.argsort(-scores[:, side], kind="stable")[:CANDIDATES] for side in (0, 1))
    return [
        (float(scores[a, 0] + scores[b, 1]), place.offsets[a][0], place.offsets[b][1])
        for a in firsts.tolist()
        for b in lasts.tolist()
        if a <= b < a + max_length
    ]
