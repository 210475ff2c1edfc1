"""`predict_file` for every kind of task: the rows or places of the file, with what the model says in Python."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

import keel
from keel.stages.predict import predict_file

Teach = Callable[..., tuple[Path, dict[str, Any]]]
Labelled = Callable[[str, int, int], Path]


def bulk(model: Path, file: Path, out: Path) -> list[dict[str, Any]]:
    predict_file(str(model), str(file), str(out))
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def alike(found: Any, wanted: Any) -> bool:
    """Equal but for the last digits of numbers."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(alike(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    return bool(found == (pytest.approx(wanted, abs=1e-5) if isinstance(wanted, float) else wanted))


def test_tagged_sentences_have_their_line_and_text(taught: Teach, labelled: Labelled, tmp_path: Path) -> None:
    model, file = taught("tag")[0], labelled("tag", 2, 12)
    with file.open("ab") as lines:
        lines.write(b"\nThe X O\ncaf\xe9 X O\n\nThe X O\ngull X B-WHO\n")
    rows = bulk(model, file, tmp_path / "a.jsonl")
    good = [row for row in rows if not row["error"]]
    assert len(rows) == 14 and len(good) == 13
    assert rows[0]["where"] == "line 1" and rows[0]["text"].endswith(" .") and rows[-1]["text"] == "The gull"
    (bad,) = [row for row in rows if row["error"]]
    assert bad["entities"] is None and "invalid UTF-8" in bad["error"]
    answers = keel.load(str(model)).predict([row["text"].split() for row in good])
    assert alike([{key: row[key] for key in ("entities", "tags")} for row in good], answers)
    for row in good:
        for entity in row["entities"]:
            assert row["text"][entity["start"] : entity["end"]] == entity["text"]


def test_nested_answers_of_texts_are_json_in_csv_and_values_in_parquet(
    taught: Teach, labelled: Labelled, tmp_path: Path
) -> None:
    model = taught("tag")[0]
    texts = [row.split("\t")[0] for row in labelled("classify", 4, 9).read_text().splitlines()[1:]]
    file = tmp_path / "texts.csv"
    with file.open("w", newline="") as target:
        csv.writer(target).writerows([("text",), *((text,) for text in texts)])
    answers = keel.load(str(model)).predict(texts)
    assert any(answer["entities"] for answer in answers)
    predict_file(str(model), str(file), str(tmp_path / "a.csv"))
    with (tmp_path / "a.csv").open(newline="") as source:
        table = list(csv.DictReader(source))
    assert [row["text"] for row in table] == texts
    assert alike([json.loads(row["entities"]) for row in table], [answer["entities"] for answer in answers])
    predict_file(str(model), str(file), str(tmp_path / "a.parquet"))
    frame = pandas.read_parquet(tmp_path / "a.parquet")
    assert alike([list(row) for row in frame["entities"]], [answer["entities"] for answer in answers])
    assert [list(row) for row in frame["tags"]] == [answer["tags"] for answer in answers]


def test_questions_keep_their_ids(taught: Teach, labelled: Labelled, tmp_path: Path) -> None:
    model, file = taught("answer")[0], labelled("answer", 2, 10)
    rows = bulk(model, file, tmp_path / "a.jsonl")
    assert [row["id"] for row in rows] == [str(number) for number in range(10)]
    assert rows[3]["where"] == "question 3"
    pairs = [
        (entry["question"], paragraph["context"])
        for article in json.loads(file.read_text())["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]
    answers = keel.load(str(model)).predict(pairs)
    assert alike([row["answer"] for row in rows], [answer["answer"] for answer in answers])
    table = tmp_path / "asked.jsonl"
    table.write_text(
        "".join(json.dumps({"id": f"q{n}", "question": q, "context": c}) + "\n" for n, (q, c) in enumerate(pairs))
    )
    rows = bulk(model, table, tmp_path / "b.jsonl")
    assert [row["id"] for row in rows] == [f"q{n}" for n in range(10)] and "id_predicted" not in rows[0]
    assert alike([row["answer"] for row in rows], [answer["answer"] for answer in answers])


def test_choices_and_pairs_keep_their_columns(taught: Teach, labelled: Labelled, tmp_path: Path) -> None:
    model, file = taught("choose")[0], labelled("choose", 2, 8)
    given = [json.loads(line) for line in file.read_text().splitlines()]
    rows = bulk(model, file, tmp_path / "a.jsonl")
    assert [{key: row[key] for key in given[0]} for row in rows] == given
    answers = keel.load(str(model)).predict([(row["text"], row["choices"]) for row in given])
    assert [row["choice"] for row in rows] == [answer["choice"] for answer in answers]
    assert [row["text_predicted"] for row in rows] == [answer["text"] for answer in answers]
    model, file = taught("regress")[0], labelled("regress", 2, 8)
    rows = bulk(model, file, tmp_path / "b.jsonl")
    answers = keel.load(str(model)).predict([(row["sentence1"], row["sentence2"]) for row in rows])
    assert alike([row["value"] for row in rows], [answer["value"] for answer in answers])
    assert list(rows[0]) == ["sentence1", "sentence2", "score", "value", "error"]
