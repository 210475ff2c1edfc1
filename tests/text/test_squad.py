"""SQuAD files: questions are read as written, wrong offsets are repaired, and errors name their question."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keel.errors import UserError, separate
from keel.text import squad as reader
from keel.text.squad import Question

SAME_FOLDER = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
CONTEXT = "The keel was laid in Kiel. In Kiel the keel stayed."


def read_squad(*given: Any, **options: Any) -> Any:
    return separate(reader.read_squad(*given, **options))


def write(path: Path, whole: Any) -> Path:
    data = whole if isinstance(whole, bytes) else json.dumps(whole, ensure_ascii=False, indent=1).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def squad(*questions: Any, context: Any = CONTEXT) -> dict[str, Any]:
    return {"version": "x", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


def asked(*answers: tuple[str, Any], **more: Any) -> dict[str, Any]:
    marked = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": "q1", "question": "Where?", "answers": marked, **more}


def one(tmp_path: Path, question: Any, context: str = CONTEXT) -> Question:
    (found,), rejected = read_squad(write(tmp_path / "a.json", squad(question, context=context)))
    assert not rejected
    return found


def reason(tmp_path: Path, question: Any) -> str:
    """Why a question is rejected, while the valid question after it is not."""
    path = write(tmp_path / "a.json", squad(question, asked(("keel", 4), id="good")))
    (neighbour,), (rejected,) = read_squad(path)
    assert neighbour.id == "good" and (rejected.file, rejected.line) == (str(path), 0)
    return rejected.reason


def error(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_squad(path)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message.removeprefix(str(path))


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, int]]]:
    context = draw(
        st.text(st.sampled_from('ab 字😀\n"') | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
    )
    answers = []
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(context) - 1))
        answers.append((context[start : draw(st.integers(start + 1, len(context)))], start))
    return context, draw(st.text("ab?字", min_size=1)), [answer for answer in answers if answer[0].strip()]


@SAME_FOLDER
@given(written=st.lists(questions(), min_size=1, max_size=3), bom=st.booleans(), gz=st.booleans())
def test_what_was_written_is_read_back(tmp_path: Path, written: list[Any], bom: bool, gz: bool) -> None:
    articles = [
        squad(asked(*answers, id=str(number), question=question), context=context)["data"][0]
        for number, (context, question, answers) in enumerate(written)
    ]
    data = ("\ufeff" if bom else "") + json.dumps({"data": articles}, ensure_ascii=gz)
    path = write(tmp_path / f"a.json{'.gz' if gz else ''}", data.encode())
    assert read_squad(path) == (
        [
            Question(str(path), str(number), question, context, answers, impossible=not answers, repaired=False)
            for number, (context, question, answers) in enumerate(written)
        ],
        [],
    )


@SAME_FOLDER
@given(context=st.text("ab", max_size=20), text=st.text("ab", min_size=1, max_size=3), start=st.integers(-5, 30))
@example(context="abbbbba", text="a", start=5)
@example(context="abbbbba", text="a", start=1)
def test_a_wrong_offset_becomes_the_nearest_right_one(tmp_path: Path, context: str, text: str, start: int) -> None:
    found, rejected = read_squad(write(tmp_path / "a.json", squad(asked((text, start)), context=context)))
    places = [place for place in range(len(context)) if context.startswith(text, place)]
    if not places:
        assert not found and rejected[0].reason == f"question 'q1': answer not in context: '{text}'"
        return
    ((answer, place),) = found[0].answers
    assert answer == text and place in places
    assert abs(place - start) == min(abs(p - start) for p in places)
    assert found[0].repaired == (start not in places) and not found[0].dropped


def test_an_answer_that_is_not_in_the_context_is_dropped_while_others_stay(tmp_path: Path) -> None:
    found = one(tmp_path, asked(("Hamburg", -1), ("Kiel", 21), ("in Kiel", 19)))
    assert found.answers == [("Kiel", 21), ("in Kiel", 18)]
    assert found.dropped == ["Hamburg"] and found.repaired
    found = one(tmp_path, asked(("Hamburg", 3), ("Kiel", 21)))
    assert found.dropped == ["Hamburg"] and not found.repaired
    assert reason(tmp_path, asked(("Hamburg", 3), ("Rostock", -1))) == "question 'q1': answer not in context: 'Hamburg'"


def test_questions_without_answers(tmp_path: Path) -> None:
    plain = {"id": 7, "question": "Where?"}
    found = one(tmp_path, plain)
    assert found == Question(found.file, "7", "Where?", CONTEXT, [], impossible=False, repaired=False)
    plausible = {"plausible_answers": [{"text": "keel", "answer_start": 4}]}
    for question in (asked(is_impossible=True, **plausible), asked(), asked(("", -1), is_impossible=True)):
        found = one(tmp_path, question)
        assert found.impossible and found.answers == []
    assert not one(tmp_path, asked(("keel", 4), is_impossible=False)).impossible


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (asked(("keel", 4), is_impossible=True), "question 'q1': marked as impossible, yet it has answers"),
        (asked(is_impossible=False), "question 'q1': no answers, though it is marked as possible"),
        (asked(is_impossible="no"), "question 'q1': 'is_impossible' is neither true nor false but 'no'"),
        (asked(("keel", "4")), "question 'q1': an answer without a string 'text' and an integer 'answer_start'"),
        (asked(answers={"text": ["keel"]}), "question 'q1': 'answers' is not a list but a dict"),
        (asked(answers=["keel"]), "question 'q1': an answer without a string 'text' and an integer 'answer_start'"),
        (asked(("keel", 4), question=" "), "question 'q1': no text under 'question'"),
        (asked(id=None), "article 1, paragraph 1, question 1: no 'id'; give it one that no other question has"),
        ("Where?", "article 1, paragraph 1, question 1: no 'id'; give it one that no other question has"),
    ],
)
def test_an_error_rejects_its_question(tmp_path: Path, question: Any, expected: str) -> None:
    assert reason(tmp_path, question) == expected


def test_errors_above_the_questions(tmp_path: Path) -> None:
    whole = squad(asked(("keel", 4)))
    whole["data"][0]["paragraphs"] += [{"qas": []}, {"context": "x"}, "x"]
    whole["data"] += [{"title": "t"}, 3]
    found, rejected = read_squad(write(tmp_path / "a.json", whole))
    assert len(found) == 1 and [r.reason for r in rejected] == [
        "article 1, paragraph 2: no string 'context'",
        "article 1, paragraph 3: no list 'qas'",
        "article 1, paragraph 4: no string 'context'",
        "article 2: no list 'paragraphs'",
        "article 3: no list 'paragraphs'",
    ]


def test_invalid_utf8_rejects_the_questions_that_contain_it(tmp_path: Path) -> None:
    data = json.dumps(squad(asked(("keel", 4), id="bad @"), asked(("keel", 4)))).encode().replace(b"@", b"\xff")
    (found,), (rejected,) = read_squad(write(tmp_path / "a.json", data))
    assert found.id == "q1"
    assert rejected.reason == "question 'bad \\udcff': invalid UTF-8: byte 0xff; save the text as UTF-8"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert ", line 3, column 1: not JSON (Expecting" in error(write(tmp_path / "a.json", b'{"data": [\n1,\n]}'))
    lines = error(write(tmp_path / "a.json", b'{"id": 1}\n{"id": 2}\n'))
    assert ", line 2, column 1: not JSON (Extra data)" in lines and ".jsonl" in lines
    assert 'expected {"data": [...]}, found no object' in error(write(tmp_path / "a.json", [1]))
    assert "found an object with the keys ['version', 'dta']" in error(
        write(tmp_path / "a.json", {"version": 1, "dta": []})
    )
    assert "no questions" in error(write(tmp_path / "a.json", squad()))
    assert "not JSON" in error(write(tmp_path / "a.json", b"[" * 100_000))
    assert "the file is empty" in error(write(tmp_path / "a.json", b" "))
    assert "UTF-16" in error(write(tmp_path / "a.json", "{}".encode("utf-16")))
    assert "binary" in error(write(tmp_path / "a.json", b"\0\1"))
    assert error(tmp_path / "b.json").endswith("Did you mean 'a.json'?")
    assert "give one of .json" in error(write(tmp_path / "a.jsonl", b"{}"))
