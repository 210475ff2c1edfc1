"""Extractive question answering: where in a text is the answer (SQuAD 1 and 2; Rajpurkar et al. 2016, 2018).

In: SQuAD's json. Learns: each token's scores to be the first and the last of the answer; [CLS] means that the text does
not answer (Devlin et al. 2018). Out: the answer, its characters in the text, a ranked list of others, and, for data
with unanswerable questions, whether there is one.

Notable choices
- A long text is cut into overlapping windows after the question; the best span over all windows wins.
- A window that does not hold the answer is trained to say so; the scores of [CLS] are the null score at prediction.
- The no-answer threshold is the one that is best on the development data, as in SQuAD 2's official scoring.

Shapes: T tokens, R rows, L longest row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Cut, Objective, Plot, Rows, Score, Table, Task, Tokenizer, Window
from keel.layers.dropout import Dropout
from keel.layers.pooling import row_of_token
from keel.metrics import answers as metrics
from keel.text.labelled import LabelledData, as_text
from keel.text.long_text import window_starts
from keel.text.squad import Question, read_squad
from keel.text.tables import Rejected, read_table
from keel.text.words import IDEOGRAPH
from keel.tokenizers.frame import frame, framing

CHINESE = re.compile(f"[{IDEOGRAPH}]")
NO_WHERE = (0, 0)  # [CLS]
FAR = 1e4  # beyond any difference of scores
WORST = 20
CONSIDERED = 20  # starts and ends that are paired


class AnswerConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["answer"] = "answer"
    may_be_impossible: bool | None = Field(None, description="questions may have no answer; null: as in the data")
    threshold: float = Field(0.0, description="a span must beat the null score by this much; tuned on the dev data")
    longest_answer: int = Field(30, ge=1, description="tokens")
    question_tokens: int = Field(64, ge=1, description="of a longer question only the first are kept")
    best: int = Field(5, ge=1, description="answers listed")
    scoring: Literal["squad", "chinese"] | None = Field(None, description="null: chinese if the answers mostly are")
    dropout: float = Field(0.0, ge=0, lt=1, description="before the head; the published BERT has none there")


@dataclass(frozen=True)
class Place:
    """How a window's tokens lie in the text: the first context token's place in the row, and characters of each."""

    first: int
    offsets: list[tuple[int, int]]


class Answer(Task):
    Config = AnswerConfig
    headline = "f1"
    gist = "answer"
    several_texts = True
    usage = ('--pair "A text." "A question?"', '("A question?", "A text.")')

    def __init__(self, config: AnswerConfig, data: LabelledData) -> None:
        self.config = config
        self.data = data

    def read(self, path: str, labelled: bool = True) -> tuple[list[Question], list[Rejected]]:
        if path.removesuffix(".gz").endswith(".json"):
            questions, rejected = read_squad(path, labelled)
            if labelled:
                unknown = [q for q in questions if not q.answers and not q.impossible]
                rejected += [Rejected(q.file, 0, f"question {q.id}: no answers") for q in unknown]
                nowhere = [(q, text) for q in questions for text in q.dropped]
                rejected += [
                    Rejected(q.file, 0, f"question {q.id}: answer not in context: {t!r:.60}") for q, t in nowhere
                ]
                questions = [q for q in questions if q.answers or q.impossible]
            return questions, rejected
        if labelled:
            raise UserError(f"{path}: questions with their answers are read from SQuAD's .json (also .json.gz)")
        columns: dict[str, str | None] = {"text": self.data.text or "context", "pair": self.data.pair or "question"}
        records, rejected = read_table(path, columns)
        questions = []
        for r in records:
            asked, context = (as_text(r.fields[role]) for role in ("pair", "text"))
            if asked and context:
                questions.append(Question(r.file, str(r.line), asked, context, [], False, False))
            else:
                rejected.append(Rejected(r.file, r.line, "no question or no text"))
        return questions, rejected

    def example(self, given: Any) -> Question:
        if isinstance(given, str) or len(given) != 2:
            raise UserError(f"a question and a text are needed, not {str(given)[:60]!r}")
        question, context = given
        return Question("", "", question, context, [], False, False)

    def settle(self, examples: Sequence[Question]) -> Answer:
        update: dict[str, Any] = {}
        if self.config.may_be_impossible is None:
            update["may_be_impossible"] = any(q.impossible for q in examples)
        if self.config.scoring is None:
            said = "".join(text for q in examples for text, _ in q.answers)
            update["scoring"] = "chinese" if 2 * len(CHINESE.findall(said)) > len(said) else "squad"
        return Answer(self.config.model_copy(update=update), self.data)

    def remarks(self, examples: Sequence[Question]) -> list[str]:
        repaired = sum(q.repaired for q in examples)
        if not repaired:
            return []
        return [
            f"{repaired:,} questions have an answer that does not begin where the file says; it was found elsewhere"
        ]

    def tune(self, examples: Sequence[Question], answers: Sequence[dict[str, Any]]) -> Answer:
        """The task with the threshold that is best for these examples."""
        if not self.config.may_be_impossible:
            return self
        spans = [
            self._judge(q, a["best"][0]["text"] if a["best"] else "") for q, a in zip(examples, answers, strict=True)
        ]
        nulls = [self._judge(q, "") for q in examples]
        found = metrics.no_answer_threshold([a["margin"] for a in answers], spans, nulls)
        margin = max(-FAR, min(FAR, found.margin))  # never and always, as numbers that JSON can hold
        return Answer(self.config.model_copy(update={"threshold": margin}), self.data)

    def objective(self, backbone: Backbone) -> AnswerObjective:
        return AnswerObjective(self.config, backbone)

    def windows(self, examples: Sequence[Question], tokenizer: Tokenizer) -> tuple[list[Window], Cut]:
        windows, cut = [], Cut()
        specials = framing(tokenizer, 2)
        asked = tokenizer.encode([q.question for q in examples])
        text = None
        context: list[int] = []
        offsets: list[tuple[int, int]] = []
        for number, (question, ids) in enumerate(zip(examples, asked, strict=True)):
            if question.context is not text:  # questions about one text stand together
                text, (context, offsets) = question.context, tokenizer.encode_with_offsets(question.context)
            kept = ids[: min(self.config.question_tokens, (self.data.length - specials) // 2)]
            room = self.data.length - len(kept) - specials
            gold = _token_span(question, offsets)
            for start in window_starts(len(context), room, self.data.long.overlap):
                stop = min(len(context), start + room)
                first = len(kept) + specials - 1
                row = frame(tokenizer, [kept, np.asarray(context[start:stop], np.int64)])
                inside = gold is not None and start <= gold[0] and gold[1] < stop
                span = (gold[0] - start + first, gold[1] - start + first) if gold and inside else NO_WHERE
                place = Place(first, offsets[start:stop])
                windows.append(Window(*row, number, answers={"answer": np.array(span)}, place=place))
            cut += Cut(1, int(len(kept) < len(ids)), len(ids) + len(context), len(ids) - len(kept))
        return windows, cut

    def answer(
        self, examples: Sequence[Question], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        found: list[list[tuple[float, int, int]]] = [[] for _ in examples]
        nulls = [float("inf")] * len(examples)
        for window, output in zip(windows, outputs, strict=True):
            nulls[window.example] = min(nulls[window.example], float(output[0].sum()))
            best = _spans(output, window.place, self.config.longest_answer)
            found[window.example] += sorted(best, reverse=True)[: self.config.best]
        return [self._shown(q, spans, null) for q, spans, null in zip(examples, found, nulls, strict=True)]

    def _shown(self, question: Question, spans: list[tuple[float, int, int]], null: float) -> dict[str, Any]:
        best: dict[tuple[int, int], float] = {}
        for score, start, end in sorted(spans, reverse=True):
            best.setdefault((start, end), score)  # windows overlap: a span may be found twice
        ranked = list(best.items())[: self.config.best]
        scores = torch.tensor([score for _, score in ranked] + ([null] if self.config.may_be_impossible else []))
        chances = scores.softmax(0).tolist()
        listed = [
            {"text": question.context[start:end], "start": start, "end": end, "probability": chance, "score": score}
            for ((start, end), score), chance in zip(ranked, chances, strict=False)
        ]
        margin = ranked[0][1] - null if ranked else -FAR
        nothing = chances[-1] if chances else 1.0
        answer: dict[str, Any] = {"answer": "", "start": None, "end": None, "probability": nothing}
        if listed and not (self.config.may_be_impossible and margin < self.config.threshold):
            first = listed[0]
            answer = {"answer": first["text"], **{key: first[key] for key in ("start", "end", "probability")}}
        return {"id": question.id, **answer, "margin": margin, "best": listed}

    def score(self, examples: Sequence[Question], answers: Sequence[dict[str, Any]]) -> dict[str, float]:
        judged = [self._judge(q, a["answer"]) for q, a in zip(examples, answers, strict=True)]
        if not judged:
            return {"f1": float("nan"), "exact": float("nan")}
        return {
            "f1": float(np.mean([score.f1 for score in judged])),
            "exact": float(np.mean([score.exact for score in judged])),
        }

    def gold(self, example: Question) -> list[str]:
        return [text for text, _ in example.answers] + list(example.dropped)

    def details(self, examples: Sequence[Question], answers: Sequence[dict[str, Any]]) -> list[Table | Plot]:
        pairs = list(zip(examples, answers, strict=True))
        judged = [(self._judge(q, a["answer"]).f1, -a["probability"], n) for n, (q, a) in enumerate(pairs)]
        rows = []
        for f1, chance, n in sorted(judged)[:WORST]:
            gold = " / ".join(text for text, _ in examples[n].answers) or "no answer"
            rows.append((examples[n].question, gold, answers[n]["answer"] or "no answer", -chance, f1, examples[n].id))
        return [Table("Worst errors", ("question", "right", "said", "probability", "F1", "id"), rows)]

    def _judge(self, question: Question, guess: str) -> metrics.AnswerScore:
        golds = self.gold(question) or [""]
        return (metrics.cmrc if self.config.scoring == "chinese" else metrics.squad)(golds, guess)


class AnswerObjective(Objective):
    name = "answer"
    one_for = "token"

    def __init__(self, config: AnswerConfig, backbone: Backbone) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(backbone.width, 2)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        return rows, {"answer.answers": rows.answers["answer"]}

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(T, 2): each token's scores to be the first and the last of the answer."""
        scores: Tensor = self.out(self.dropout(backbone(batch).vectors))
        return scores

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        scores, answers = self.predict(backbone, batch).float(), batch.targets["answer.answers"]
        rows, longest = len(batch.lengths), max(batch.lengths)
        place = row_of_token(batch) * longest + batch.positions
        padded = scores.new_full((rows * longest, 2), float("-inf")).index_copy(0, place, scores)
        logits = padded.view(rows, longest, 2).transpose(1, 2)  # (R, 2, L)
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="sum") / 2
        right = (logits.argmax(2) == answers).all(1).sum()
        return {self.name: Score(loss, right, rows)}


def _token_span(question: Question, offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and last token of the first answer; None: there is none, or the tokenizer dropped all of it."""
    if not question.answers:
        return None
    text, start = question.answers[0]
    stop = start + len(text)
    inside = [n for n, (a, b) in enumerate(offsets) if a < stop and b > start]
    return (inside[0], inside[-1]) if inside else None


def _spans(output: np.ndarray, place: Place, longest: int) -> list[tuple[float, int, int]]:
    """The best (score, first character, last character + 1) of a window."""
    scores = output[place.first : place.first + len(place.offsets)]
    if not len(scores):
        return []
    firsts, lasts = (np.argsort(-scores[:, side], kind="stable")[:CONSIDERED] for side in (0, 1))
    return [
        (float(scores[a, 0] + scores[b, 1]), place.offsets[a][0], place.offsets[b][1])
        for a in firsts.tolist()
        for b in lasts.tolist()
        if a <= b < a + longest
    ]
