"""Bad labelled data: one clear line that names file, row and cure, or the row left out and listed. Nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keel.errors import UserError
from keel.finetuning.labelled import REJECTED
from keel.stages.evaluate import evaluate
from keel.stages.finetune import finetune

Labelled = Callable[[str, int, int], Path]
SHORT = ("training.steps=2", "data.length=32", "training.precision=fp32")


@pytest.fixture
def attempt(finished_run: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(kind: str, train: Path, dev: Path | None = None, *overrides: str, **options: Any) -> dict[str, Any]:
        out = str(tmp_path / "out")
        dev_path = str(dev) if dev else None
        changes = [*SHORT, *overrides]
        return finetune(
            str(finished_run), kind, train=str(train), dev=dev_path, out=out, overrides=changes, quiet=True, **options
        )

    return run


def refused(attempt: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        attempt(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_wrong_column(attempt: Callable[..., Any], labelled: Labelled) -> None:
    train = labelled("classify", 1, 20)
    message = refused(attempt, "classify", train, None, "data.label=lable")
    assert str(train) in message and "'label'" in message
    other = write(train.with_name("odd.tsv"), "words\tanswer", "a\tb")
    message = refused(attempt, "classify", other)
    assert "'words'" in message and "--text" in message


@pytest.mark.parametrize("kind", ["classify", "regress"])
def test_texts_without_labels(kind: str, attempt: Callable[..., Any], tmp_path: Path) -> None:
    texts = write(tmp_path / "texts.txt", "the keel", "the mast")
    message = refused(attempt, kind, texts)
    assert "texts.txt: a .txt holds one text per line and no label" in message


def test_a_folder_with_other_things_in_it_is_left_alone(
    attempt: Callable[..., Any], labelled: Labelled, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    mine = write(tmp_path / "out" / "README.md", "my notes")
    message = refused(attempt, "classify", labelled("classify", 1, 20))
    assert "choose another --out" in message
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["README.md"] and mine.read_text() == "my notes\n"


def test_one_class_only_and_far_too_many(attempt: Callable[..., Any], tmp_path: Path) -> None:
    one = write(tmp_path / "one.tsv", "text\tlabel", *(f"word {n}\tsame" for n in range(5)))
    assert "'same'" in refused(attempt, "classify", one)
    many = write(tmp_path / "many.tsv", "text\tlabel", *(f"word {n}\t{n}" for n in range(200_000)))
    message = refused(attempt, "classify", many)
    assert "200,000" in message and "regress" in message


def test_bad_rows_are_left_out_and_listed(attempt: Callable[..., Any], tmp_path: Path) -> None:
    good = [f"the captain {n}\tyes" if n % 2 else f"the gull {n}\tno" for n in range(20)]
    train = write(tmp_path / "train.tsv", "text\tlabel", *good, "   \tyes", "no label", "an answer missing\t")
    dev = write(tmp_path / "dev.tsv", "text\tlabel", *good[:6], "the mast\tmaybe")
    with dev.open("ab") as file:
        file.write("über\tyes\n".encode("latin-1"))
    message = refused(attempt, "classify", train, dev, strict=True)
    assert "train.tsv, line 2" in message and "3 such rows" in message
    result = attempt("classify", train, dev)
    assert (result["examples"], result["dev_examples"], result["rejected"]) == (20, 6, 5)
    listed = [json.loads(line) for line in (tmp_path / "out" / REJECTED).read_text(encoding="utf-8").splitlines()]
    found = {(Path(row["file"]).name, row["line"]): row["reason"] for row in listed}
    assert found[("train.tsv", 22)] == "empty text"
    assert "column" in found[("train.tsv", 23)] and found[("train.tsv", 24)] == "empty label"
    assert "'maybe'" in found[("dev.tsv", 8)] and "UTF-8" in found[("dev.tsv", 9)]


def test_a_bad_row_is_named_before_what_follows_from_it(attempt: Callable[..., Any], tmp_path: Path) -> None:
    """Without its bad row the file has one class only; the row is the cause."""
    train = write(tmp_path / "train.tsv", "text\tlabel", "the keel\tyes", "\tno")
    assert "line 3: empty text (--strict" in refused(attempt, "classify", train, strict=True)
    message = refused(attempt, "classify", train)
    assert "'yes'" in message and "train.tsv, line 3: empty text" in message


def test_scores_that_are_no_numbers(attempt: Callable[..., Any], tmp_path: Path) -> None:
    rows = [f"a{n},b{n},{n / 2}" for n in range(12)]
    train = write(tmp_path / "train.csv", "sentence1,sentence2,score", *rows, "a,b,NaN", "a,b,high", "a,b,inf")
    flat = write(tmp_path / "flat.csv", "sentence1,sentence2,score", *(f"a{n},b,1" for n in range(5)))
    assert "same number" in refused(attempt, "regress", flat)
    assert attempt("regress", train)["rejected"] == 3


def test_conll_with_missing_columns(attempt: Callable[..., Any], tmp_path: Path) -> None:
    sentences = [line for n in range(12) for line in (f"gull{n} B-WHO", "flies O", "")]
    train = write(tmp_path / "train.conll", *sentences, "the O", "lonely", "")
    bare = write(tmp_path / "bare.conll", "the", "gull", "")
    assert "column" in refused(attempt, "tag", bare)
    result = attempt("tag", train)
    assert result["rejected"] == 1
    (bad,) = (tmp_path / "out" / REJECTED).read_text(encoding="utf-8").splitlines()
    assert json.loads(bad)["line"] == len(sentences) + 2


def test_an_answer_that_is_not_in_its_text(attempt: Callable[..., Any], tmp_path: Path) -> None:
    def question(number: int, text: str, start: int) -> dict[str, Any]:
        answers = [{"text": text, "answer_start": start}]
        return {"id": f"q{number}", "question": "Who?", "answers": answers}

    context = "The old captain watches the harbour."
    asked = [question(n, "captain", 8) for n in range(10)]
    asked += [question(10, "captain", 3), question(11, "whale", 0)]
    train = tmp_path / "train.json"
    train.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": asked}]}]}), encoding="utf-8")
    result = attempt("answer", train)
    assert result["examples"] + result["dev_examples"] == 11, "a wrong place is repaired where the text occurs"
    (bad,) = (tmp_path / "out" / REJECTED).read_text(encoding="utf-8").splitlines()
    assert "q11" in json.loads(bad)["reason"]


def test_a_model_without_a_task_is_not_asked(finished_run: Path, labelled: Labelled) -> None:
    with pytest.raises(UserError, match="keel finetune"):
        evaluate(str(finished_run), str(labelled("classify", 1, 4)))
