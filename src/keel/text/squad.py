"""Reads questions about passages with their answers: SQuAD 1 and 2, XQuAD, CMRC 2018; .json, also .gz.

In: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}],
"is_impossible"}]}]}]}; other keys are ignored. Out: the questions, and a `Rejected` for each that cannot be used.

Notable choices
- An answer that is not at its `answer_start` is searched for in the context: some published files have wrong offsets
  (CMRC 2018: 21 answers in train, 200 in dev, most of them given as -1), and the occurrence nearest to the given offset
  is the right one.
- An answer that does not occur in the context cannot be learned as a span, but predictions may still be scored against
  it: its text is kept in `dropped`. A question left without any answer is rejected.
- Articles are parsed one by one, so memory does not grow with the file. (An incremental JSON library was rejected: it
  replaces half surrogate pairs by `?` without a word, and refuses a whole file for one invalid byte.)
- An empty list of answers means that the question has none, as in SQuAD's own scoring; a missing list means that the
  answers are not known and are to be predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keel.errors import Rejected, UserError
from keel.in_memory import Source
from keel.text.json_items import json_items
from keel.text.tables import UnusableRecord, check_file, not_unicode, read_table


@dataclass(frozen=True, slots=True)
class Question:
    file: str
    id: str
    question: str
    context: str
    answers: list[tuple[str, int]]  # text, where it begins in the context; empty if impossible or not known
    impossible: bool  # marked as unanswerable from the context
    repaired: bool  # an answer was not at its `answer_start` and was found elsewhere
    dropped: list[str] = field(default_factory=list)  # answers that do not occur in the context

    @property
    def where(self) -> str:
        return f"{self.file}, question {self.id}" if self.file else ""


def read_squad(path: str | Path, labelled: bool = True) -> Iterator[Question | Rejected]:
    """The questions of a file. If `labelled` is false, answers are ignored, valid or not. A `Rejected` has line 0 and
    names its question, because line numbers mean nothing in such a file."""
    path = Path(path)
    check_file(path, (".json",))
    empty = True
    for row in _questions(str(path), json_items(path, "data", "SQuAD"), labelled):
        yield row
        empty = False
    if empty:
        raise UserError(f"{path}: there are no questions in this file; give one that has some")


def read_question_rows(source: Source, columns: dict[str, str]) -> Iterator[Question | Rejected]:
    """Labelled questions of a table, one in each row. `columns` are those of text, pair (the question) and label.

    Answers are {"text": [...], "answer_start": [...]}, as data sets in columns have them, or a list as in SQuAD."""
    for record in read_table(source, columns):
        if isinstance(record, Rejected):
            yield record
            continue
        context, question, answers = (record.fields[role] for role in ("text", "pair", "label"))
        entry = {"id": record.line, "question": question, "answers": _as_list(answers)}
        try:
            if not isinstance(context, str):
                raise UnusableRecord(f"no text under '{columns['text']}'")
            yield _question(record.file, context, entry, True)
        except UnusableRecord as unusable:
            yield Rejected(record.file, record.line, str(unusable))


def _as_list(answers: Any) -> Any:
    match answers:
        case {"text": list(texts), "answer_start": list(starts)} if len(texts) == len(starts):
            return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    return answers


def _under(value: Any, key: str, kind: type) -> Any:
    """The value of a key if it has the type, else None."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, kind) else None


def _questions(file: str, articles: Iterator[Any], labelled: bool) -> Iterator[Question | Rejected]:
    for number, article in enumerate(articles, 1):
        paragraphs = _under(article, "paragraphs", list)
        if paragraphs is None:
            yield Rejected(file, 0, f"article {number}: no list 'paragraphs'")
        for place, paragraph in enumerate(paragraphs or [], 1):
            where = f"article {number}, paragraph {place}"
            context, entries = _under(paragraph, "context", str), _under(paragraph, "qas", list)
            if context is None or entries is None:
                missing = "string 'context'" if context is None else "list 'qas'"
                yield Rejected(file, 0, f"{where}: no {missing}")
                continue
            for index, entry in enumerate(entries, 1):
                identity = entry.get("id") if isinstance(entry, dict) else None
                name = f"{where}, question {index}" if identity is None else f"question {identity!r:.60}"
                try:
                    yield _question(file, context, entry, labelled)
                except UnusableRecord as unusable:
                    yield Rejected(file, 0, f"{name}: {unusable}")


def _question(file: str, context: str, entry: Any, labelled: bool) -> Question:
    identity = _under(entry, "id", str) or _under(entry, "id", int)
    question = _under(entry, "question", str)
    if identity is None:
        raise UnusableRecord("no 'id'; give it one that no other question has")
    if question is None or not question.strip():
        raise UnusableRecord("no text under 'question'")
    if not labelled:
        entry = {"id": identity, "question": question}
    impossible = entry.get("is_impossible")
    if impossible not in (None, True, False):
        raise UnusableRecord(f"'is_impossible' is neither true nor false but {impossible!r:.40}")
    listed = entry.get("answers")
    answers = _answers(listed)
    if reason := not_unicode("".join((str(identity), question, context, *(text for text, _ in answers)))):
        raise UnusableRecord(reason)
    if impossible is None:
        impossible = listed is not None and not answers
    if impossible and answers:
        raise UnusableRecord("marked as impossible, yet it has answers")
    if listed is not None and not impossible and not answers:
        raise UnusableRecord("no answers, though it is marked as possible")
    located = [(text, start, _find(context, text, start)) for text, start in answers]
    placed = [(text, place) for text, _, place in located if place >= 0]
    if answers and not placed:
        raise UnusableRecord(f"answer not in context: {answers[0][0]!r:.60}")
    repaired = any(place not in (start, -1) for _, start, place in located)
    dropped = [text for text, _, place in located if place < 0]
    return Question(file, str(identity), question, context, placed, impossible, repaired, dropped)


def _answers(listed: Any) -> list[tuple[str, int]]:
    """The answers that have a text: some files mark impossible questions by an empty one."""
    if not isinstance(listed, list | None):
        raise UnusableRecord(f"'answers' is not a list but a {type(listed).__name__}")
    answers = []
    for answer in listed or []:
        match answer:
            case {"text": str(text), "answer_start": int(start)}:
                answers.append((text, start))
            case _:
                raise UnusableRecord("an answer without a string 'text' and an integer 'answer_start'")
    return [(text, start) for text, start in answers if text.strip()]


def _find(context: str, text: str, start: int) -> int:
    """The occurrence of the text nearest to `start`; -1 if there is none."""
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    if before < 0 or after < 0:
        return max(before, after)
    return before if start - before <= after - start else after
