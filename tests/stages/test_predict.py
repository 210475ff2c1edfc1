"""Bulk prediction: a table's rows with their answers, whole and in order, whatever the format and whatever is in it."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import keel
from keel.cli.main import run
from keel.errors import UserError
from keel.files.growing import DATA, JOURNAL, PARTIAL
from keel.stages import predict as stage
from keel.stages.embed import embed
from keel.stages.predict import predict_file

REVIEWS = [
    {"id": "7", "text": "The captain remembers the keel, at dawn.", "label": "captain", "note": ""},
    {"id": "8", "text": "", "label": "sailor", "note": "no text"},
    {"id": "9", "text": 'The "young" sailor\nfollows 海鸥 🚢', "label": "gull", "note": "two\r\nlines"},
    {"id": "10", "text": "The gull remembers the mast.", "label": "gull", "note": " spaces "},
]
ANSWER = ["label_predicted", "probability", "probabilities", "error"]


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.fixture(scope="module")
def expected(classifier: Path) -> list[dict[str, Any] | None]:
    """What the model says in Python; None for the row without a text."""
    model = keel.load(str(classifier))
    answers = iter(model.predict([row["text"] for row in REVIEWS if row["text"]]))
    return [next(answers) if row["text"] else None for row in REVIEWS]


def same(found: Any, wanted: dict[str, Any] | None) -> bool:
    """Digits at the end may differ, because other rows were computed together with it."""
    if wanted is None:
        return found["label_predicted"] in ("", None) and found["error"] == "line 3: empty text"
    near = all(
        found["probabilities"][name] == pytest.approx(p, abs=1e-6) for name, p in wanted["probabilities"].items()
    )
    return near and found["label_predicted"] == wanted["label"] and not found["error"]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_every_format_has_the_rows_and_what_the_model_says_in_python(
    name: str, classifier: Path, expected: list[dict[str, Any] | None], tmp_path: Path
) -> None:
    source = write_csv(tmp_path / "reviews.csv", REVIEWS)
    said = list[Any]()
    result = predict_file(str(classifier), str(source), str(tmp_path / name), report=said.append)
    assert (result["rows"], result["answered"], result["errors"]) == (4, 3, 1)
    assert result["seconds"] > 0 and result["rows_per_second"] > 0
    assert "no answer: line 3: empty text" in said
    path = tmp_path / name
    if name.endswith(".gz"):
        path = tmp_path / name.removesuffix(".gz")
        path.write_bytes(gzip.decompress((tmp_path / name).read_bytes()))
    if name == "a.parquet":
        frame = pandas.read_parquet(path)
        assert list(frame.columns) == [*REVIEWS[0], *ANSWER]
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    else:
        rows = read_csv(path) if ".csv" in name else read_jsonl(path)
        assert list(rows[0]) == [*REVIEWS[0], *ANSWER]
    for row, given_row, wanted in zip(rows, REVIEWS, expected, strict=True):
        assert {key: row[key] for key in given_row} == given_row
        if isinstance(row["probabilities"], str) and row["probabilities"]:
            row["probabilities"] = json.loads(row["probabilities"])
        assert same(row, wanted), (row, wanted)
    assert not (tmp_path / f"{name}{PARTIAL}").exists()


def test_pandas_reads_the_csv(classifier: Path, expected: list[dict[str, Any] | None], tmp_path: Path) -> None:
    source = write_csv(tmp_path / "reviews.csv", REVIEWS)
    predict_file(str(classifier), str(source), str(tmp_path / "a.csv"))
    frame = pandas.read_csv(tmp_path / "a.csv", dtype={"id": str}, keep_default_na=False)
    assert frame["text"].tolist() == [row["text"] for row in REVIEWS]
    assert frame["note"].tolist() == [row["note"] for row in REVIEWS]
    assert frame["label_predicted"].tolist() == [wanted["label"] if wanted else "" for wanted in expected]
    numbers = frame["probability"][frame["error"] == ""].astype(float)
    assert numbers.tolist() == pytest.approx([wanted["probability"] for wanted in expected if wanted], abs=1e-6)


def test_objects_keep_their_keys_and_nested_values(classifier: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "the gull", "meta": {"year": 1999, "tags": ["a", "b"]}, "score": 1},
        {"text": "the mast", "score": 2.5, "late": "only here", "error": "its own"},
        {"text": None, "score": 12345678901234567890123, "meta": None},
    ]
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    for name in ("a.jsonl", "a.csv", "a.parquet"):
        predict_file(str(classifier), str(source), str(tmp_path / name))
    found = read_jsonl(tmp_path / "a.jsonl")
    for row, given_row in zip(found, rows, strict=True):
        assert list(row)[: len(given_row)] == list(given_row)
        assert {key: row[key] for key in given_row} == given_row
    assert found[0]["label"] and "label_predicted" not in found[0]
    assert [row["error_predicted"] for row in found] == [None, None, "line 3: empty text"]
    table = read_csv(tmp_path / "a.csv")
    columns = ["text", "meta", "score", "late", "error", "label", "probability", "probabilities", "error_predicted"]
    assert list(table[0]) == columns
    assert json.loads(table[0]["meta"]) == rows[0]["meta"] and table[1]["late"] == "only here"
    frame = pandas.read_parquet(tmp_path / "a.parquet")
    assert list(frame.columns) == columns
    assert frame["meta"][0]["year"] == 1999 and list(frame["meta"][0]["tags"]) == ["a", "b"]
    assert frame["score"].tolist() == ["1", "2.5", "12345678901234567890123"], "no number has them all: text"


def test_rows_that_cannot_be_used_are_kept_where_they_are(classifier: Path, tmp_path: Path) -> None:
    source = tmp_path / "mixed.csv"
    source.write_bytes(
        b'id,text\n1,the gull\n2\n3,a,b\n"4,open quote\n5,"caf\xe9 at dawn"\n\n6,\n\xff7,the mast\n8,"the keel"\n'
    )
    predict_file(str(classifier), str(source), str(tmp_path / "a.csv"))
    rows = read_csv(tmp_path / "a.csv")
    assert [row["id"] for row in rows] == ["1", "2", "3", "", "5", "6", "\ufffd7", "8"]
    assert [bool(row["label"]) for row in rows] == [True, False, False, False, False, False, True, True]
    reasons = [row["error"] for row in rows]
    assert [reason.partition(":")[0] for reason in reasons] == ["", *(f"line {n}" for n in (3, 4, 5, 6, 8)), "", ""]
    assert "too few columns" in reasons[1] and "too many columns" in reasons[2] and "quote" in reasons[3]
    assert "UTF-8" in reasons[4] and "empty" in reasons[5]
    with pytest.raises(UserError, match=r"mixed.csv, line 3: too few columns.*--strict; 5 such rows"):
        predict_file(str(classifier), str(source), str(tmp_path / "strict.csv"), strict=True)
    assert not list(tmp_path.glob("strict*"))


def test_a_file_without_any_usable_row_is_an_error_and_leaves_nothing(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "blank.csv").write_text("text,id\n,1\n ,2\n")
    with pytest.raises(UserError, match="no row can be used: line 2: empty text"):
        predict_file(str(classifier), str(tmp_path / "blank.csv"), str(tmp_path / "a.csv"))
    assert [path.name for path in tmp_path.iterdir()] == ["blank.csv"]


def test_columns_by_number_and_columns_with_one_name(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "bare.tsv").write_text("1\tthe gull\n2\tthe mast\tmore\n")
    predict_file(str(classifier), str(tmp_path / "bare.tsv"), str(tmp_path / "a.csv"), columns={"text": "2"})
    rows = read_csv(tmp_path / "a.csv")
    assert [list(row.values())[:3] for row in rows] == [["1", "the gull", ""], ["2", "the mast", "more"]]
    assert list(rows[0])[:4] == ["column_1", "column_2", "column_3", "label"]
    (tmp_path / "twice.csv").write_text("x,text,x,x_2\n1,the gull,2,3\n")
    predict_file(str(classifier), str(tmp_path / "twice.csv"), str(tmp_path / "b.csv"))
    assert list(read_csv(tmp_path / "b.csv")[0].items())[:4] == [
        ("x", "1"),
        ("text", "the gull"),
        ("x_3", "2"),
        ("x_2", "3"),
    ]


ODD = [
    "",
    " ",
    '"',
    '""',
    ",",
    "\n",
    "\r",
    "\r\n",
    "\t",
    "a\0b",
    "海鸥",
    "🚢👨‍👩‍👧",
    "\ufeff",
    "\u2028",
    "=1+1",
    "null",
    "1e5",
]
cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(ODD)


@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cells_survive_from_csv_to_csv(
    classifier: Path, tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    # A NUL near the beginning means a binary file to Keel; a column of letters before them keeps it away from there.
    rows = [{"pad": "x" * 9000, "text": f"the gull {n}", "a": a, "b": b, "c": c} for n, (a, b, c) in enumerate(table)]
    source = write_csv(folder / "in.csv", rows)
    result = predict_file(str(classifier), str(source), str(folder / "out.csv"))
    assert result["answered"] == len(rows)
    csv.field_size_limit(1 << 20)
    found = read_csv(folder / "out.csv")
    assert [{key: row[key] for key in rows[0]} for row in found] == rows
    assert [list(row) for row in found] == [[*rows[0], "label", "probability", "probabilities", "error"]] * len(rows)


def test_lines_of_text_in_and_out(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the gull\r\n\nthe mast at dawn\nlast without newline", encoding="utf-8")
    predict_file(str(classifier), str(tmp_path / "lines.txt"), str(tmp_path / "a.jsonl"))
    rows = read_jsonl(tmp_path / "a.jsonl")
    assert [row["text"] for row in rows] == ["the gull", "", "the mast at dawn", "last without newline"]
    assert [row["error"] for row in rows] == [None, "line 2: empty", None, None]


# ---------------------------------------------------------------------------------------------------------------------
# Interruptions


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows at once, and a journal after each group."""
    monkeypatch.setattr(stage, "GROUP_SIZE", 10 * 1100)
    monkeypatch.setattr("keel.files.growing.SYNC_SECONDS", 0.0)


class Power(BaseException):
    """Ends the work at a chosen group."""


def fail_at(monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    real, count = keel.inference.model.Model.answer_group, iter(range(10**6))

    def answer(self: Any, examples: list[Any]) -> Any:
        if next(count) == group:
            raise Power
        return real(self, examples)

    monkeypatch.setattr(keel.inference.model.Model, "answer_group", answer)


def rows_of(path: Path, count: int) -> Path:
    words = ("captain", "sailor", "gull", "mast")
    return write_csv(path, [{"n": str(n), "text": f"the {words[n % 4]} " * (1 + n % 7)} for n in range(count)])


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz", "a.parquet"])
def test_interrupted_anywhere_the_bytes_are_the_same(
    name: str, classifier: Path, small_groups: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = rows_of(tmp_path / "in.csv", 60)
    predict_file(str(classifier), str(source), str(tmp_path / f"calm-{name}"))
    out = tmp_path / name
    for group in (3, 0, 1):
        with monkeypatch.context() as patch:
            fail_at(patch, group)
            with pytest.raises(Power):
                predict_file(str(classifier), str(source), str(out), resume=True)
        assert not out.exists()
    with pytest.raises(UserError, match="add --resume to continue"):
        predict_file(str(classifier), str(source), str(out))
    result = predict_file(str(classifier), str(source), str(out), resume=True)
    assert 0 < result["resumed_after"] < 60 == result["rows"]
    assert out.read_bytes() == (tmp_path / f"calm-{name}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, f"calm-{name}", "in.csv"])
    with pytest.raises(UserError, match="already there"):
        predict_file(str(classifier), str(source), str(out), resume=True)


def test_what_was_written_after_the_journal_does_not_count(
    classifier: Path, small_groups: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill leaves it: more data than the journal knows, the last line cut."""
    source, out = rows_of(tmp_path / "in.csv", 60), tmp_path / "a.jsonl"
    predict_file(str(classifier), str(source), str(tmp_path / "calm.jsonl"))
    with monkeypatch.context() as patch:
        fail_at(patch, 2)
        with pytest.raises(Power):
            predict_file(str(classifier), str(source), str(out))
    with (tmp_path / f"a.jsonl{PARTIAL}" / DATA).open("ab") as data:
        data.write(b'{"line": 22, "answer": {"label": "gu')
    (tmp_path / f"a.jsonl{PARTIAL}" / ".writing-journal.json-x").write_text("half")
    predict_file(str(classifier), str(source), str(out), resume=True)
    assert out.read_bytes() == (tmp_path / "calm.jsonl").read_bytes()


def test_other_data_another_model_and_damage_are_refused_by_name(
    classifier: Path,
    labelled: Callable[..., Path],
    finished_run: Path,
    small_groups: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, out = rows_of(tmp_path / "in.csv", 60), tmp_path / "a.csv"
    with monkeypatch.context() as patch:
        fail_at(patch, 2)
        with pytest.raises(Power):
            predict_file(str(classifier), str(source), str(out))
    folder = tmp_path / f"a.csv{PARTIAL}"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = write_csv(tmp_path / "other.csv", [{"n": "1", "text": "the gull"}])
    with pytest.raises(UserError, match=r"a.csv.partial: was begun with other data than .*other.csv"):
        predict_file(str(classifier), str(other), str(out), resume=True)
    with pytest.raises(UserError, match="was begun with other columns or lengths"):
        predict_file(str(classifier), str(source), str(out), resume=True, columns={"text": "n"})
    from keel.stages.finetune import finetune

    changes = ["training.steps=2", "training.precision=fp32", "data.length=24"]
    finetune(
        str(finished_run),
        "classify",
        train=str(labelled("classify", 3, 20)),
        out=str(tmp_path / "second"),
        overrides=changes,
        quiet=True,
    )
    with pytest.raises(UserError, match=r"was begun with other weights than .*second"):
        predict_file(str(tmp_path / "second"), str(source), str(out), resume=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, "a refusal changes nothing"
    data = bytearray(before[DATA])
    data[5] ^= 1
    (folder / DATA).write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        predict_file(str(classifier), str(source), str(out), resume=True)
    (folder / JOURNAL).write_text("[]")
    with pytest.raises(UserError, match=r"journal\.json: damaged"):
        predict_file(str(classifier), str(source), str(out), resume=True)


def test_nothing_is_replaced(classifier: Path, tmp_path: Path) -> None:
    source, out = rows_of(tmp_path / "in.csv", 5), tmp_path / "a.csv"
    out.write_text("mine")
    for resume in (False, True):
        with pytest.raises(UserError, match="already there"):
            predict_file(str(classifier), str(source), str(out), resume=resume)
    assert out.read_text() == "mine" and len(list(tmp_path.iterdir())) == 2
    (tmp_path / f"b.csv{PARTIAL}").mkdir()
    (tmp_path / f"b.csv{PARTIAL}" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="holds no unfinished work"):
        predict_file(str(classifier), str(source), str(tmp_path / "b.csv"))
    assert (tmp_path / f"b.csv{PARTIAL}" / "thesis.txt").read_text() == "mine"
    for name in ("a.xlsx", "a.parquet.gz", "a"):
        with pytest.raises(UserError, match=r"\.csv, \.jsonl"):
            predict_file(str(classifier), str(source), str(tmp_path / name))


def test_vectors_resume_too(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keel.stages.embed.GROUP_SIZE", 10 * 1100)
    monkeypatch.setattr("keel.files.growing.SYNC_SECONDS", 0.0)
    source = rows_of(tmp_path / "in.csv", 60)
    embed(str(finished_run), str(source), str(tmp_path / "calm.npy"))
    real, count = keel.inference.model.Model.embed, iter(range(100))

    def fail(self: Any, *args: Any, **options: Any) -> Any:
        if next(count) == 3:
            raise Power
        return real(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(keel.inference.model.Model, "embed", fail)
        with pytest.raises(Power):
            embed(str(finished_run), str(source), str(tmp_path / "v.npy"))
    with pytest.raises(UserError, match="other settings"):
        embed(str(finished_run), str(source), str(tmp_path / "v.npy"), pooling="cls", resume=True)
    result = embed(str(finished_run), str(source), str(tmp_path / "v.npy"), resume=True)
    assert np.load(tmp_path / "v.npy").shape == (60, result["width"])
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "calm.npy").read_bytes()


# ---------------------------------------------------------------------------------------------------------------------
# The command


def test_with_input_each_line_has_its_text_or_its_row(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", str(classifier), "the gull", "the mast", "--with-input"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["the gull", "the mast"] and all(line["label"] for line in lines)
    source = write_csv(tmp_path / "in.csv", [row for row in REVIEWS if row["text"]])
    assert run(["predict", str(classifier), "--file", str(source), "--with-input"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == ["7", "9", "10"]
    assert all(line["label_predicted"] for line in lines) and "error" not in lines[0]
    assert run(["predict", str(classifier), "--file", str(source), "--out", str(tmp_path / "a.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answered"] == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["text", "--out", "a.csv"], "--out belongs to --file"),
        (["--file", "x.csv", "--resume"], "--resume and --strict to --out"),
        (["--file", "x.csv", "--out", "a.csv", "--with-input"], "omit --with-input"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], said: str, classifier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", str(classifier), *options]) == 2
    assert said in capsys.readouterr().err
