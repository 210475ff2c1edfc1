"""`import keel`: the functions give what the commands give, on data in memory as on files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch

import keel
from conftest import ENVIRONMENT, TINY, documents
from keel.api.result import Result
from keel.errors import UserError
from keel.files.folders import sha256
from keel.text.conll import read_conll

TEXTS = documents(seed=1, count=240)
RUN = {"quiet": True, "threads": 1}


@pytest.fixture
def keel_in(keel_command: list[str], tmp_path: Path) -> Callable[..., None]:
    """Runs the real command in `tmp_path`."""

    def run(*arguments: str) -> None:
        done = subprocess.run(
            [*keel_command, *arguments], cwd=tmp_path, capture_output=True, text=True, env=ENVIRONMENT
        )
        assert done.returncode == 0, done.stderr

    return run


def labelled(count: int, seed: int = 3) -> list[dict[str, str]]:
    texts = documents(seed, count)
    return [{"text": text, "label": "sea" if "keel" in text or "龙骨" in text else "land"} for text in texts]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The line from texts in memory to a pretrained model."""
    folder = tmp_path_factory.mktemp("line")
    tokenizer = keel.train_tokenizer(TEXTS, folder / "tokenizer", vocab_size=300, quiet=True)
    corpus = keel.build_corpus(
        pandas.DataFrame({"text": TEXTS}), tokenizer, folder / "corpus", held_out=0.1, quiet=True
    )
    return keel.pretrain("bert-tiny", corpus, folder / "model", steps=20, settings=list(TINY), **RUN)


def test_the_line_in_memory_is_the_line_on_files(model: Any, tmp_path: Path, keel_in: Callable[..., None]) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (tmp_path / "texts.jsonl").write_text(lines)
    settings = [part for one in TINY for part in ("--set", one)]
    keel_in("tokenizer", "train", "texts.jsonl", "--vocab-size", "300", "--out", "tokenizer")
    keel_in("corpus", "build", "texts.jsonl", "--tokenizer", "tokenizer", "--held-out", "0.1", "--out", "corpus")
    command = ("--corpus", "corpus", "--out", "model", "--steps", "20", "--threads", "1", *settings)
    keel_in("pretrain", "bert-tiny", *command)
    assert sha256(tmp_path / "model" / "model.safetensors") == sha256(model.out / "model.safetensors")
    rows = labelled(60)
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    quick = ("--epochs", "1", "--threads", "1")
    keel_in("finetune", "model", "classify", "--train", "train.jsonl", "--out", "tuned", *quick)
    tuned = keel.finetune(model, "classify", rows, out=tmp_path / "also", epochs=1, **RUN)
    assert sha256(tmp_path / "tuned" / "model.safetensors") == sha256(tmp_path / "also" / "model.safetensors")
    found = json.loads((tmp_path / "tuned" / "result.json").read_text())
    assert found["accuracy"] == tuned["accuracy"] and found["examples"] == tuned["examples"] == 54


def test_no_file_of_texts_is_left(model: Any) -> None:
    assert not list(model.out.parent.glob("*.jsonl"))


def test_a_result_is_a_path_and_opens_its_model(model: Any) -> None:
    assert os.fspath(model) == str(model.out)
    assert len(model.model.fill("The old [MASK].")[0]) == 5
    assert "bert with masked_lm, next_sentence" in repr(model.model)
    assert "keel.pretrain" in repr(model) and f"{model['loss']:.4g}" in repr(model)
    assert model.report is not None and "srcdoc" in model._repr_html_()


def test_evaluate_predict_and_save(model: Any, tmp_path: Path) -> None:
    rows = labelled(90)
    tuned = keel.finetune(
        model, "classify", rows[:60], pandas.DataFrame(rows[60:]), tmp_path / "tuned", epochs=2, **RUN
    )
    found = keel.evaluate(tuned, rows[60:], quiet=True)
    assert found["accuracy"] == tuned["accuracy"]
    expected = tuned.model.predict([row["text"] for row in rows[60:]])
    assert tuned.model.predict(pandas.DataFrame(rows[60:])) == expected == tuned.model.predict(rows[60:])
    right = [answer["label"] == row["label"] for answer, row in zip(expected, rows[60:], strict=True)]
    assert sum(right) / 30 == pytest.approx(tuned["accuracy"])
    saved = keel.load(tuned.model.save(tmp_path / "copy"))
    assert saved.predict(rows[60:]) == expected


def test_a_changed_model_must_be_saved_first(model: Any, tmp_path: Path) -> None:
    loaded = keel.load(model)
    assert isinstance(loaded.module, torch.nn.Module)
    optimizer = torch.optim.SGD(loaded.module.parameters(), lr=0.1)
    loaded.module.backbone.token_embeddings().sum().backward()
    keel.finetune(loaded, "classify", labelled(20), out=tmp_path / "before", epochs=1, **RUN)
    optimizer.step()
    with pytest.raises(UserError, match="save it with"):
        keel.finetune(loaded, "classify", labelled(20), out=tmp_path / "after", **RUN)
    before, after = keel.load(model), keel.load(loaded.save(tmp_path / "saved"))
    moved = after.module.backbone.token_embeddings() - before.module.backbone.token_embeddings()
    assert torch.allclose(moved, torch.full_like(moved, -0.1), atol=1e-5)


def test_lists_of_words_are_a_file_of_columns(model: Any, tmp_path: Path) -> None:
    lines = []
    for text in documents(5, 40):
        lines += [f"{word} {'B-SHIP' if 'ship' in word else 'O'}" for word in text.split()] + [""]
    (tmp_path / "train.conll").write_text("\n".join(lines))
    rows = [{"tokens": s.words, "ner_tags": s.tags} for s in read_conll(tmp_path / "train.conll")]  # type: ignore[union-attr]
    options: dict[str, Any] = {"epochs": 1, **RUN}
    one = keel.finetune(model, "tag", rows, out=tmp_path / "one", **options)
    other = keel.finetune(model, "tag", tmp_path / "train.conll", out=tmp_path / "other", **options)
    assert sha256(tmp_path / "one" / "model.safetensors") == sha256(tmp_path / "other" / "model.safetensors")
    assert one["f1"] == other["f1"]


def test_questions_in_rows_are_a_squad_file(model: Any, tmp_path: Path) -> None:
    contexts = [text for text in documents(6, 40) if " " in text]
    rows = [
        {"question": "who?", "context": c, "answers": {"text": [c.split()[1]], "answer_start": [c.index(c.split()[1])]}}
        for c in contexts
    ]
    articles = [
        {"paragraphs": [{"context": row["context"], "qas": [{"id": n, "question": "who?", "answers": _listed(row)}]}]}
        for n, row in enumerate(rows, 1)
    ]
    (tmp_path / "train.json").write_text(json.dumps({"data": articles}))
    options: dict[str, Any] = {"epochs": 1, "length": 32, **RUN}
    keel.finetune(model, "answer", rows, out=tmp_path / "one", **options)
    keel.finetune(model, "answer", tmp_path / "train.json", out=tmp_path / "other", **options)
    assert sha256(tmp_path / "one" / "model.safetensors") == sha256(tmp_path / "other" / "model.safetensors")


def _listed(row: Any) -> list[dict[str, Any]]:
    answers = row["answers"]
    pairs = zip(answers["text"], answers["answer_start"], strict=True)
    return [{"text": text, "answer_start": start} for text, start in pairs]


def test_a_run_in_memory_resumes_on_the_same_rows_only(model: Any, tmp_path: Path) -> None:
    rows = labelled(40)
    options: dict[str, Any] = {"epochs": 1, **RUN}
    done = keel.finetune(model, "classify", rows, out=tmp_path / "run", **options)
    again = keel.finetune(model, "classify", rows, out=tmp_path / "run", resume=True, **options)
    assert again["accuracy"] == done["accuracy"]
    with pytest.raises(UserError, match="trained on other data"):
        keel.finetune(model, "classify", rows[::-1], out=tmp_path / "run", resume=True, **options)


def test_compare_takes_rows(model: Any, tmp_path: Path) -> None:
    rows = labelled(40)
    tasks = {"sea": ("classify", rows[:30], pandas.DataFrame(rows[30:]))}
    found = keel.compare(
        {"a": model, "b": os.fspath(model)}, tasks, tmp_path / "c", seeds=1, settings={"training.epochs": 1}, **RUN
    )
    assert [row["member"] for row in found["rows"]] == ["a", "b"]
    assert found["rows"][0]["tasks"]["sea"]["mean"] == found["rows"][1]["tasks"]["sea"]["mean"]


def test_without_out_a_folder_is_made_under_runs(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = keel.finetune(model, "classify", labelled(20), epochs=1, **RUN)
    second = keel.finetune(model, "classify", labelled(20), epochs=1, **RUN)
    assert [str(first.out), str(second.out)] == ["runs/classify-1", "runs/classify-2"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, p: keel.train_tokenizer([str(p)], p / "t", quiet=True), "these are names of files"),
        (lambda m, p: keel.train_tokenizer([1], p / "t", quiet=True), "texts, number 1: a text is needed, not a int"),
        (lambda m, p: keel.train_tokenizer([{"body": "a"}], p / "t", quiet=True), "there is no column 'text'"),
        (lambda m, p: keel.finetune(m, "classify", 5, out=p / "t"), "train: a path, a list of rows"),
        (lambda m, p: keel.finetune(m, "classify", [], out=p / "t"), "<train>: there are no rows"),
        (lambda m, p: keel.finetune(m, "classify", [("", "x")], out=p / "t"), "<train>, row 1: empty text"),
        (lambda m, p: keel.finetune(m, "classify", labelled(9), settings="a=1", out=p / "t"), "give a dictionary"),
        (lambda m, p: keel.finetune(m, "classify", labelled(9), resume=True), "resume=True needs out"),
        (lambda m, p: keel.load(m).embed(["a", None]), "text 2: None is not a text"),
        (lambda m, p: os.fspath(Result("evaluate", None, {})), "give out=..."),
    ],
)
def test_mistakes_are_one_line(call: Any, message: str, model: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        call(model, tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_messages_name_what_python_has(model: Any, tmp_path: Path) -> None:
    """Arguments, not the options of the command; and what a label may be."""
    rows = {"review": ["a keel", "a mast"] * 4, "topic": ["ship", "land"] * 4}
    with pytest.raises(UserError, match=r"holds the text.*choose with text=NAME") as raised:
        keel.finetune(model, "classify", train={"title": rows["review"], "topic": rows["topic"]}, quiet=True)
    assert "--" not in str(raised.value)
    settings = {"training.steps": 1, "training.epochs": None}
    made = keel.finetune(model, "classify", rows, out=tmp_path / "a", label="topic", quiet=True, settings=settings)
    with pytest.raises(UserError, match="'review', wanted as text; rename the column that holds it"):
        made.model.predict([{"text": "a keel"}])
    with pytest.raises(UserError, match="'topic', wanted as label; choose with label=NAME"):
        keel.evaluate(made, {"review": ["a keel"]})
    with pytest.raises(UserError, match="unknown label 'sea': not in the training data, which has 'land', 'ship'"):
        keel.evaluate(made, {"review": ["a keel"], "topic": ["sea"]})
