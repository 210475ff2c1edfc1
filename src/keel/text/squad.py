"""Questions about passages, with answers marked in them: SQuAD 1 and 2, XQuAD, CMRC 2018; .json, also .gz.

In: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}],
"is_impossible"}]}]}]}; other keys are left alone. Out: the questions, and a `Rejected` for each that cannot be had.

Notable choices
- An answer that does not stand where the file says is looked for: published files are wrong here and there (CMRC 2018:
  21 answers in train, 200 in dev, most of them given as -1), and the occurrence nearest to the place given is right.
- An answer that stands nowhere cannot be learned as a span, but a prediction may still be scored against it: its text
  is kept in `dropped`. A question left without any answer is rejected.
- Answers given as an empty list mean there is none, as in SQuAD's own scoring; no answers given at all mean it is ours
  to find them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.text.tables import Rejected, not_unicode, read_bytes


@dataclass(frozen=True, slots=True)
class Question:
    file: str
    id: str
    question: str
    context: str
    answers: list[tuple[str, int]]  # text, where it begins in the context; none if impossible or not known
    impossible: bool  # the file says that the context does not answer it
    repaired: bool  # an answer did not begin where the file said, and was found elsewhere
    dropped: list[str] = field(default_factory=list)  # answers that do not occur in the context


class _Faulty(Exception):
    """The message is the reason."""


def read_squad(path: str | Path, labelled: bool = True) -> tuple[list[Question], list[Rejected]]:
    """The questions of a file; without their answers, right or wrong, if `labelled` is false. Lines mean nothing here:
    a `Rejected` has line 0 and names its question."""
    path = Path(path)
    questions: list[Question] = []
    rejected: list[Rejected] = []
    for found in _questions(str(path), _articles(path), labelled):
        if isinstance(found, Question):
            questions.append(found)
        else:
            rejected.append(found)
    if not questions and not rejected:
        raise UserError(f"{path}: there are no questions in this file; give one that has some")
    return questions, rejected


def _articles(path: Path) -> list[Any]:
    text = read_bytes(path, (".json",)).decode("utf-8", "surrogateescape")
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        lines = "; for one object per line the suffix is .jsonl" if error.msg == "Extra data" else ""
        raise UserError(f"{path}, line {error.lineno}, column {error.colno}: not JSON ({error.msg}){lines}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from None
    articles = _under(whole, "data", list)
    if articles is None:
        found = f"an object with the keys {list(whole)!r:.60}" if isinstance(whole, dict) else "no object"
        raise UserError(f'{path}: not SQuAD; expected {{"data": [...]}}, found {found}')
    return articles


def _under(value: Any, key: str, kind: type) -> Any:
    """What is under a key if it is of the kind, else None."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, kind) else None


def _questions(file: str, articles: list[Any], labelled: bool) -> Iterator[Question | Rejected]:
    for number, article in enumerate(articles, 1):
        paragraphs = _under(article, "paragraphs", list)
        if paragraphs is None:
            yield Rejected(file, 0, f"article {number}: no list 'paragraphs'")
        for place, paragraph in enumerate(paragraphs or [], 1):
            where = f"article {number}, paragraph {place}"
            context, asked = _under(paragraph, "context", str), _under(paragraph, "qas", list)
            if context is None or asked is None:
                missing = "string 'context'" if context is None else "list 'qas'"
                yield Rejected(file, 0, f"{where}: no {missing}")
                continue
            for one, given in enumerate(asked, 1):
                identity = given.get("id") if isinstance(given, dict) else None
                name = f"{where}, question {one}" if identity is None else f"question {identity!r:.60}"
                try:
                    yield _question(file, context, given, labelled)
                except _Faulty as faulty:
                    yield Rejected(file, 0, f"{name}: {faulty}")


def _question(file: str, context: str, given: Any, labelled: bool) -> Question:
    identity = _under(given, "id", str) or _under(given, "id", int)
    question = _under(given, "question", str)
    if identity is None:
        raise _Faulty("no 'id'; give it one that no other question has")
    if question is None or not question.strip():
        raise _Faulty("no text under 'question'")
    if not labelled:
        given = {"id": identity, "question": question}
    impossible = given.get("is_impossible")
    if impossible not in (None, True, False):
        raise _Faulty(f"'is_impossible' is neither true nor false but {impossible!r:.40}")
    marked = given.get("answers")
    answers = _answers(marked)
    if reason := not_unicode("".join((str(identity), question, context, *(text for text, _ in answers)))):
        raise _Faulty(reason)
    if impossible is None:
        impossible = marked is not None and not answers
    if impossible and answers:
        raise _Faulty("marked as impossible, yet it has answers")
    if marked is not None and not impossible and not answers:
        raise _Faulty("no answers, though it is marked as possible")
    found = [(text, start, _find(context, text, start)) for text, start in answers]
    placed = [(text, place) for text, _, place in found if place >= 0]
    if answers and not placed:
        raise _Faulty(f"answer not in context: {answers[0][0]!r:.60}")
    repaired = any(place not in (start, -1) for _, start, place in found)
    dropped = [text for text, _, place in found if place < 0]
    return Question(file, str(identity), question, context, placed, impossible, repaired, dropped)


def _answers(marked: Any) -> list[tuple[str, int]]:
    """Those with a text: some files mark the impossible by an empty one."""
    if not isinstance(marked, list | None):
        raise _Faulty(f"'answers' is no list but a {type(marked).__name__}")
    found = []
    for answer in marked or []:
        match answer:
            case {"text": str(text), "answer_start": int(start)}:
                found.append((text, start))
            case _:
                raise _Faulty("an answer without a string 'text' and a whole number 'answer_start'")
    return [(text, start) for text, start in found if text.strip()]


def _find(context: str, text: str, start: int) -> int:
    """Where the text occurs, as near to the start as can be; -1 if nowhere."""
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    if before < 0 or after < 0:
        return max(before, after)
    return before if start - before <= after - start else after
