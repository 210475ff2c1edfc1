"""Things that must not happen quietly: folders overwritten, runs mixed up, rows misread, heads that nobody else has."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import keel
from keel.cli.main import run
from keel.comparing.grid import search
from keel.errors import UserError
from keel.stages.evaluate import evaluate
from keel.stages.finetune import finetune
from keel.stages.predict import predict
from keel.training.example_stream import MICRO_BATCH_TOKENS, ExampleStream
from keel.training.settings import FinetuneSettings

Teach = Callable[..., tuple[Path, dict[str, Any]]]
Labelled = Callable[[str, int, int], Path]
QUICK = ["training.steps=2", "data.length=32", "training.precision=fp32"]


def test_an_evaluation_overwrites_nothing(taught: Teach, labelled: Labelled, tmp_path: Path) -> None:
    out, _ = taught("classify")
    data = str(labelled("classify", 2, 10))
    with pytest.raises(UserError, match="choose another --out"):
        evaluate(str(out), data, out=str(out))
    report = tmp_path / "report"
    evaluate(str(out), data, out=str(report))
    lines = [json.loads(line) for line in (report / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 10 and all(line["where"] and line["gold"] for line in lines)
    assert "Confusion" in (report / "report.html").read_text()


def test_a_search_does_not_take_other_runs_for_its_own(finished_run: Path, labelled: Labelled, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"out": str(tmp_path / "s"), "overrides": QUICK, "seeds": 2, "quiet": True}
    arguments["train"] = str(labelled("classify", 1, 20))
    search(str(finished_run), "classify", **arguments)
    with pytest.raises(UserError, match="already contains runs"):
        search(str(finished_run), "classify", **arguments)
    other = arguments | {"train": str(labelled("classify", 5, 20))}
    with pytest.raises(UserError, match="other settings or data"):
        search(str(finished_run), "classify", **other, resume=True)


def test_questions_without_answers_are_not_learnt(finished_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"context": "The gull flies.", "question": "Who?"}) + "\n")
    with pytest.raises(UserError, match="no record has the key 'answers'"):
        finetune(str(finished_run), "answer", train=str(path), out=str(tmp_path / "o"), overrides=QUICK, quiet=True)


def test_lines_of_text_are_tagged_whole(taught: Teach, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("The gull remembers the mast at dawn.\nThe sailor remembers the keel at dawn.\n")
    answers = predict(str(taught("tag")[0]), str(path))
    assert [len(answer["tags"]) for answer in answers] == [8, 8]


def test_labels_that_are_falsy_stay(finished_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text,score\n" + "".join(f"the gull {n},{n % 3}\n" for n in range(30)))
    out = tmp_path / "o"
    finetune(str(finished_run), "regress", train=str(path), out=str(out), overrides=QUICK, quiet=True)
    gold = {json.loads(line)["gold"] for line in (out / "answers.jsonl").read_text().splitlines()}
    assert 0.0 in gold and None not in gold


def test_null_is_no_text(finished_run: Path, tmp_path: Path) -> None:
    rows = [{"text": f"the {w} flies", "label": w} for w in ("gull", "mast") for _ in range(10)]
    rows += [{"text": None, "label": "gull"}, {"text": ["a"], "label": "gull"}, {"text": "the gull", "label": None}]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "o"
    result = finetune(str(finished_run), "classify", train=str(path), out=str(out), overrides=QUICK, quiet=True)
    assert result["rejected"] == 3 and keel.load(str(out)).task.config.labels == ["gull", "mast"]


def test_several_labels_at_once(finished_run: Path, tmp_path: Path) -> None:
    words = ("captain", "gull", "mast")
    rows = []
    for n in range(240):
        said = [w for place, w in enumerate(words) if n >> place & 1]
        rows.append({"text": f"the {' and the '.join(said) or 'keel'} at dawn", "label": said})
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "o"
    settings = ["task.multi_label=true", "task.pooling=mean", "training.learning_rate=5e-3", "training.epochs=8"]
    settings += ["data.length=32", "training.precision=fp32"]
    result = finetune(str(finished_run), "classify", train=str(path), out=str(out), overrides=settings, quiet=True)
    assert result["micro_f1"] > 0.8
    (answer,) = keel.load(str(out)).predict(["the captain and the gull at dawn"])
    assert set(answer["probabilities"]) == set(words) and all(name in words for name in answer["labels"])


def test_no_answer_is_an_answer_and_its_threshold_is_kept(finished_run: Path, tmp_path: Path) -> None:
    paragraphs = []
    for n in range(80):
        who, possible = ("captain", "gull", "sailor", "carpenter")[n % 4], n % 3 != 0
        context = f"The {who} watches the harbour at dawn." if possible else "The harbour is at the island."
        answers = [{"text": who, "answer_start": 4}] if possible else []
        asked = {"id": str(n), "question": "Who watches?", "answers": answers, "is_impossible": not possible}
        paragraphs.append({"context": context, "qas": [asked]})
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    out = tmp_path / "o"
    settings = ["data.length=48", "training.learning_rate=3e-3", "training.epochs=10", "training.precision=fp32"]
    result = finetune(
        str(finished_run), "answer", train=str(path), dev=str(path), out=str(out), overrides=settings, quiet=True
    )
    assert result["f1"] > 0.6
    assert evaluate(str(out), str(path))["f1"] == pytest.approx(result["f1"])
    model = keel.load(str(out))
    assert model.task.config.unanswerable
    (nothing,) = model.predict([("Who watches?", "The harbour is at the island.")])
    assert nothing["answer"] == "" and nothing["start"] is None


@pytest.mark.parametrize("overrides", [("task.pooling=mean",), ("task.pooling=attention",)])
def test_a_head_that_transformers_lacks_is_not_passed_off_as_its_own(taught: Teach, overrides: tuple[str, ...]) -> None:
    import transformers

    out, _ = taught("classify", *overrides)
    assert json.loads((out / "config.json").read_text())["architectures"] == ["BertModel"]
    _, loading = transformers.AutoModel.from_pretrained(out, output_loading_info=True, add_pooling_layer=False)
    assert not loading["missing_keys"]
    assert all(name.startswith("keel.") for name in loading["unexpected_keys"])


def test_a_step_of_long_texts_is_cut_into_micro_batches(taught: Teach) -> None:
    model = keel.load(str(taught("classify")[0]))
    task = model.task.replace(long=model.task.data.long.model_copy(update={"strategy": "windows"}))
    windows, _ = task.windows([task.example("the gull watches " * 3000)] * 4, model.tokenizer)
    micro_batches, _ = ExampleStream(windows, FinetuneSettings(batch_size=4), task.needs)(0.0, {})
    sizes = [len(rows.ids) for rows in micro_batches]
    assert len(sizes) > 2 and max(sizes) <= MICRO_BATCH_TOKENS
    assert sum(sizes) == sum(len(window.ids) for window in windows), "nothing is left out"


def test_what_cannot_be_asked_is_one_line(taught: Teach, capfd: pytest.CaptureFixture[str]) -> None:
    for kind in ("choose", "answer"):
        assert run(["predict", str(taught(kind)[0]), "one text"]) == 2
        out, err = capfd.readouterr()
        assert not out and len(err.splitlines()) == 1 and "needed" in err


def test_models_of_several_texts_read_lists_from_standard_input(
    taught: Teach, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {
        "answer": ["Who remembers?", "The gull remembers the mast at dawn."],
        "choose": ["The gull remembers the mast.", ["sailor", "gull"]],
        "regress": ["The gull.", "The gull."],
    }
    for kind, given in asked.items():
        out = str(taught(kind)[0])
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(given) + "\n"))
        assert run(["predict", out, "-"]) == 0
        model = keel.load(out)
        assert json.loads(capsys.readouterr().out) == model.predict([given])[0]


def test_a_pair_is_not_taken_for_a_text_nor_a_text_for_a_pair(taught: Teach) -> None:
    with pytest.raises(UserError, match="a pair of texts is needed"):
        keel.load(str(taught("regress")[0])).predict(["The gull."])
    with pytest.raises(UserError, match="trained on single texts, so it takes no pair"):
        keel.load(str(taught("classify")[0])).predict([("The gull.", "The mast.")])


def test_answers_found_elsewhere_or_nowhere_are_said(taught: Teach, tmp_path: Path) -> None:
    context = "The gull remembers the mast at dawn."
    asked = [
        {"id": "moved", "question": "Who?", "answers": [{"text": "gull", "answer_start": 9}]},
        {"id": "half", "question": "Who?", "answers": [{"text": t, "answer_start": 4} for t in ("gull", "a gull")]},
    ]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": asked}]}]}))
    said: list[str] = []
    result = evaluate(str(taught("answer")[0]), str(path), report=said.append)
    assert result["examples"] == 2 and result["rejected"] == 1
    assert any(line.startswith("1 questions have an answer that does not begin at its") for line in said)
    assert any("question half: answer not in context: 'a gull'" in line for line in said)


def test_wrong_answers_do_not_keep_questions_from_being_asked(taught: Teach, tmp_path: Path) -> None:
    asked = {"id": "x", "question": "Who?", "answers": [{"text": "nowhere", "answer_start": "?"}]}
    path = tmp_path / "ask.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "The gull sleeps.", "qas": [asked]}]}]}))
    assert len(predict(str(taught("answer")[0]), str(path))) == 1


def test_of_many_labels_an_answer_lists_the_likeliest(taught: Teach) -> None:
    model = keel.load(str(taught("classify")[0]))
    (whole,) = model.predict(["The gull remembers the mast at dawn."])
    model.task = model.task.replace(config={"top_labels": 2})
    (short,) = model.predict(["The gull remembers the mast at dawn."])
    assert list(whole["probabilities"].items())[:2] == list(short["probabilities"].items())
    assert short["label"] == whole["label"] == next(iter(short["probabilities"]))


BAD: list[Any] = [None, 3, "", " \n", [], (), {}, {"text": "a"}, ["a", None], ("a", 3), ["", ""], [["a"], [None]], b"a"]


@pytest.mark.parametrize("kind", ["classify", "regress", "tag", "answer", "choose"])
@pytest.mark.parametrize("given", BAD, ids=repr)
def test_an_input_that_is_no_text_is_one_line(taught: Any, kind: str, given: Any) -> None:
    """From Python as from the command line; it names the input."""
    model = keel.load(str(taught(kind)[0]))
    good = {"answer": ("Who watches?", "The gull watches."), "choose": ("The gull", ["sails", "flies"])}
    fine = good.get(kind, ("A gull.", "The gull.") if model.need_task().usage.several_texts else "The gull.")
    with pytest.raises(UserError, match=r"^input 2: ") as caught:
        model.predict([fine, given])
    assert "\n" not in str(caught.value)
    assert len(model.predict([fine, fine])) == 2


def test_an_empty_text_is_refused_by_the_command_too(taught: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", str(taught("tag")[0]), "The gull.", ""]) == 2
    assert capfd.readouterr().err.splitlines()[-1] == "keel: input 2: the text is empty; leave it out"
