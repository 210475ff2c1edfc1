"""What was read is shown before anything is trained, and what looks wrong is a warning."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from keel.stages.finetune import finetune

Rows = list[tuple[str, str]]


def lines_of(model: Path, task: str, train: Path, dev: Path, out: Path) -> list[str]:
    said = list[str]()
    quick = ["training.steps=1", "training.epochs=null", "training.precision=fp32", "data.length=32"]
    finetune(
        str(model), task, train=str(train), dev=str(dev), out=str(out), overrides=quick, report=said.append, quiet=True
    )
    return said


def table(path: Path, rows: Rows) -> Path:
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return path


def conll(path: Path, sentences: list[Rows]) -> Path:
    path.write_text("".join("".join(f"{word} {tag}\n" for word, tag in s) + "\n" for s in sentences), encoding="utf-8")
    return path


def warned(said: list[str]) -> list[str]:
    return [line.removeprefix("warning: ") for line in said if line.startswith("warning: ")]


def test_labels_lengths_and_rows_are_shown(finished_run: Path, tmp_path: Path) -> None:
    train = [(f"the old captain {n}", "good" if n % 4 else "bad") for n in range(40)]
    dev = [(f"a young sailor {n}", "good" if n % 2 else "bad") for n in range(10)]
    said = lines_of(
        finished_run, "classify", table(tmp_path / "a.tsv", train), table(tmp_path / "b.tsv", dev), tmp_path / "o"
    )
    counts = Counter(label for _, label in train)
    assert f"labels: good {counts['good']} (75.0 %), bad {counts['bad']} (25.0 %)" in said
    assert any(line.startswith("rows: 40, median ") for line in said)
    shown = [line for line in said if line.startswith("row: ")]
    assert len(shown) == 3 and shown[0].startswith("row: [CLS] the old captain") and shown[0].endswith("[SEP] -> bad")
    assert warned(said) == []
    assert said.index(shown[0]) < next(n for n, line in enumerate(said) if "texts fit" in line), "before the training"


def test_much_lost_text_comes_with_what_loses_less(finished_run: Path, tmp_path: Path) -> None:
    """The model has 64 positions, the rows have 32."""
    rows = [(" ".join(f"sailor {n} watches the {n + m} gulls" for m in range(9)), "ab"[n % 2]) for n in range(10)]
    file = table(tmp_path / "a.tsv", rows)
    said = lines_of(finished_run, "classify", file, file, tmp_path / "o")
    lost = next(n for n, line in enumerate(said) if "of all tokens are lost" in line)
    assert "(--length 64)" in said[lost + 1] and "(--long windows)" in said[lost + 1]
    few = table(tmp_path / "b.tsv", [*rows[:1], *((f"the mast {n}", "ab"[n % 2]) for n in range(300))])
    said = lines_of(finished_run, "classify", few, few, tmp_path / "p")
    assert any("of all tokens are lost" in line for line in said) and not any("--length" in line for line in said)


def test_labels_that_occur_once_and_rows_in_both_files(finished_run: Path, tmp_path: Path) -> None:
    train = [(f"the old captain {n}", f"label{n}" if n < 4 else "good") for n in range(20)]
    dev = [*train[5:8], ("every gull", "good"), ("a broken mast", "label1")]
    said = lines_of(
        finished_run, "classify", table(tmp_path / "a.tsv", train), table(tmp_path / "b.tsv", dev), tmp_path / "o"
    )
    assert warned(said) == [
        "4 of 5 labels occur only once (label0, label1, label2, ...)",
        "3 of 5 development examples are also in the training data, so that scores are too good",
    ]


def test_a_score_on_one_label_says_nothing(finished_run: Path, tmp_path: Path) -> None:
    train = [(f"the old captain {n}", "good" if n % 2 else "bad") for n in range(20)]
    dev = [(f"every gull {n}", "good") for n in range(5)]
    said = lines_of(
        finished_run, "classify", table(tmp_path / "a.tsv", train), table(tmp_path / "b.tsv", dev), tmp_path / "o"
    )
    assert warned(said) == ["all development examples have the same label, so that a score says nothing"]


def test_digits_glued_to_characters(finished_run: Path, tmp_path: Path) -> None:
    """As in the Weibo corpus, where a digit after each character marks its place in a word."""
    glued = [[("老0", "B-PER"), ("船1", "I-PER"), ("长2", "I-PER"), (f"{n}", "O")] for n in range(8)]
    said = lines_of(
        finished_run,
        "tag",
        conll(tmp_path / "a.conll", glued),
        conll(tmp_path / "b.conll", [[("木0", "B-PER"), ("匠1", "I-PER")], [("港0", "O"), ("口1", "O")]]),
        tmp_path / "o",
    )
    assert warned(said) == ["most words end in a digit, as in 老0; remove the digits if they are not part of the text"]
    assert "labels: PER 8 (100.0 %)" in said


def test_a_column_of_anything_is_suspicious(finished_run: Path, tmp_path: Path) -> None:
    sentences = [[(f"word{n}", f"tag{n}"), (f"other{n}", f"tag{n}")] for n in range(240)]
    file = conll(tmp_path / "a.conll", sentences)
    said = lines_of(finished_run, "tag", file, conll(tmp_path / "b.conll", sentences[:1]), tmp_path / "o")
    assert "there are 240 different labels; is it the right column? Choose with --label" in warned(said)
    (listed,) = [line for line in said if line.startswith("labels: ")]
    assert listed.endswith(", and 228 more")


@pytest.mark.parametrize("quiet", [True, False])
def test_nothing_is_said_if_nobody_listens(finished_run: Path, tmp_path: Path, quiet: bool, keel) -> None:  # type: ignore[no-untyped-def]
    train = table(tmp_path / "a.tsv", [(f"the old captain {n}", "good" if n % 2 else "bad") for n in range(20)])
    options = ["--epochs", "1", "--set", "training.precision=fp32", *(["--quiet"] if quiet else [])]
    done = keel("finetune", finished_run, "classify", "--train", train, "--out", tmp_path / "o", *options)
    assert done.returncode == 0 and ("labels: " in done.stderr) is not quiet
