"""Each verb calls its stage with what was typed, and prints what came back."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import sys
import types
from dataclasses import dataclass
from typing import Any

import pytest

import keel
from keel.cli import common
from keel.cli.commands import compare
from keel.cli.main import run


class Stage:
    """Stands in for a stage function: remembers the call, returns a given result."""

    def __init__(self, result: Any) -> None:
        self.result, self.args, self.options = result, (), {}

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.args, self.options = args, options
        return self.result


def put_module(monkeypatch: pytest.MonkeyPatch, module: str, **members: Any) -> None:
    fake = types.ModuleType(module)
    vars(fake).update(members)
    monkeypatch.setitem(sys.modules, module, fake)


def put(monkeypatch: pytest.MonkeyPatch, module: str, name: str, result: Any) -> Stage:
    stage = Stage(result)
    put_module(monkeypatch, module, **{name: stage})
    return stage


def test_tokenizer_train_passes_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = put(monkeypatch, "keel.stages.tokenizer", "train", {"size": 16000})
    line = (
        "tokenizer train a.txt b --out T --vocab-size 16000 --keep-accents --min-frequency 3 --documents line -q --json"
    )
    assert run(line.split()) == 0
    assert stage.args == (["a.txt", "b"], "T")
    assert stage.options == {
        "kind": "wordpiece",
        "vocab_size": 16000,
        "lowercase": True,
        "strip_accents": False,
        "min_frequency": 3,
        "documents": "line",
        "column": "text",
        "report": None,
    }
    assert json.loads(capsys.readouterr().out) == {"size": 16000}


@pytest.mark.parametrize(
    ("flags", "lowercase", "strip"),
    [([], True, None), (["--cased"], False, None), (["--uncased"], True, None), (["--keep-accents"], True, False)],
)
def test_case_and_accents(
    flags: list[str], lowercase: bool, strip: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = put(monkeypatch, "keel.stages.tokenizer", "train", {})
    assert run(["tokenizer", "train", "x", "--out", "o", *flags]) == 0
    assert (stage.options["lowercase"], stage.options["strip_accents"]) == (lowercase, strip)


def test_tokenizer_inspect_shows_unknown_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = [
        {"character": "\x1b", "codepoint": "U+001B", "name": "", "count": 7},
        {"character": "龘", "codepoint": "U+9F98", "name": "CJK UNIFIED IDEOGRAPH-9F98", "count": 3},
    ]
    result = {"size": 100, "tokens_per_word": 1.25, "unknown_share": 0.0125, "unknown_characters": unknown}
    put(monkeypatch, "keel.stages.tokenizer", "inspect", result)
    assert run(["tokenizer", "inspect", "t", "x.txt"]) == 0
    out = capsys.readouterr().out
    assert "1.25 %" in out and "龘" in out and "\\x1b" in out
    assert "\x1b" not in out


EXAMPLE = {
    "tokens": ["[CLS]", "the", "[MASK]", "of", "dog", "##s", "[SEP]", "it", "rain", "##ed", "[SEP]"],
    "marks": ["", "", "mask", "", "random", "", "", "", "keep", "", ""],
    "targets": ["", "", "capital", "", "france", "", "", "", "rain", "", ""],
    "segments": [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1],
    "next_sentence": "random",
}


def test_corpus_inspect_shows_rows_as_the_model_sees_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = [{"from": 0, "to": 127, "documents": 40}, {"from": 128, "to": 255, "documents": 1}]
    result = {"account": {"read": 42, "kept": 41, "rejected": {"empty": 1}}, "lengths": lengths}
    result |= {
        "duplicates": {"documents": 2, "groups": [{"copies": 2, "documents": [3, 9]}]},
        "held_out": 1,
        "examples": [EXAMPLE],
    }
    stage = put(monkeypatch, "keel.stages.corpus", "inspect", result)
    assert run(["corpus", "inspect", "c", "--examples", "1", "--recipe", "bert-tiny"]) == 0
    assert stage.options == {"examples": 1, "recipe": "bert-tiny", "seed": 0}
    out = capsys.readouterr().out
    assert "A: [CLS] the {[MASK]→capital} of {dog→france}s [SEP]" in out
    assert "B: it {rain→rain}ed [SEP]" in out
    assert "another document" in out
    assert "account.rejected.empty" in out
    assert "2 copies: documents 3, 9" in out
    bars = [line.count("█") for line in out.splitlines() if "█" in line]
    assert bars == [40, 1], "the smallest bin that is not empty is still seen"


def test_corpus_build_passes_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = put(monkeypatch, "keel.stages.corpus", "build", {"read": 1})
    line = "corpus build x --tokenizer t --out o --language zh --workers 2 --held-out 0.05 --column body --quiet"
    assert run(line.split()) == 0
    assert stage.args == (["x"], "t", "o")
    assert stage.options["language"] == "zh" and stage.options["workers"] == 2
    assert stage.options["held_out"] == 0.05 and stage.options["column"] == "body"


def test_pretrain_steps_is_an_override_and_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = put(monkeypatch, "keel.stages.pretrain", "pretrain", {"step": 7})
    line = "pretrain bert-tiny --corpus c --out o --budget 45m --resume"
    line += " --set training.steps=9 --set training.seed=2 --steps 7"
    assert run(line.split()) == 0
    assert stage.options["overrides"] == ["training.steps=9", "training.seed=2", "training.steps=7"]
    assert (stage.options["budget"], stage.options["resume"]) == ("45m", True)


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [
        ("keel.stages.tokenizer", "train", "tokenizer train x --out o"),
        ("keel.stages.tokenizer", "inspect", "tokenizer inspect t x"),
        ("keel.stages.corpus", "build", "corpus build x --tokenizer t --out o"),
        ("keel.stages.corpus", "inspect", "corpus inspect c"),
        ("keel.stages.pretrain", "pretrain", "pretrain bert-tiny --corpus c --out o"),
        ("keel.stages.finetune", "finetune", "finetune m classify --train t --dev d --out o --text 1 --epochs 2"),
        ("keel.stages.evaluate", "evaluate", "evaluate m --data d --strict"),
        ("keel.stages.embed", "embed", "embed m --file f --out o.npy --layers 1,2"),
        ("keel.stages.probe", "probe", "probe m --train t --dev d --json"),
        ("keel.stages.surgery", "propose", "vocab propose t x --json"),
        ("keel.stages.surgery", "shrink_vocabulary", "vocab shrink m x --out o"),
        ("keel.stages.surgery", "extend_positions", "extend-positions m --to 2048 --out o"),
        ("keel.stages.word_vectors", "evaluate_words", "words evaluate m --similarity s"),
        ("keel.stages.word_vectors", "export_words", "words export m --out o"),
        ("keel.stages.word_vectors", "import_words", "words import v --out o --cased"),
        ("keel.pretraining.held_out", "evaluate_on_corpus", "evaluate m --corpus c --eval-recipe gpt-mini"),
        ("keel.comparing.recipes", "compare_pretraining", "compare pretraining a --corpus c --out o --json"),
        ("keel.comparing.lineage", "compare_lineage", "compare lineage a --out o --seeds-of a=2 --sizes 1,2 --json"),
        ("keel.demo.demo", "demo", "demo"),
        ("keel.stages.doctor", "examine", "doctor"),
    ],
)
def test_the_stages_take_what_the_verbs_pass(
    module: str, name: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = inspect.signature(getattr(importlib.import_module(module), name))
    stage = put(monkeypatch, module, name, {"checks": []})
    assert run(line.split()) == 0
    signature.bind(*stage.args, **stage.options)


def test_evaluate_and_compare_pass_the_recipe_that_packs_and_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = put(monkeypatch, "keel.pretraining.held_out", "evaluate_on_corpus", {})
    line = "evaluate m --corpus c --eval-recipe gpt-mini"
    assert run(line.split()) == 0
    assert stage.args == ("m", "c") and stage.options["eval_recipe"] == "gpt-mini"
    monkeypatch.setattr(compare, "_tasks", lambda given, settings: [])
    stage = put(monkeypatch, "keel.comparing.recipes", "compare_pretraining", {})
    line = "compare pretraining a b --corpus c --out o --eval-recipe gpt-mini --json"
    assert run(line.split()) == 0
    assert stage.args == (["a", "b"],) and stage.options["eval_recipe"] == "gpt-mini"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("evaluate m", "--data FILE"),
        ("evaluate m --data d --corpus c", "--data FILE"),
        ("predict m", "needs texts"),
        ("predict m text --file f", "not both"),
        ("translate m", "needs texts"),
        ("compare lineage a --out o --sizes many", "--sizes many"),
        ("compare lineage a --out o --sizes 0", "at least 1"),
        ("compare lineage a --out o --seeds-of a", "MEMBER=N"),
        ("vocab shrink m x", "--out"),
        ("vocab extend m no-such-file --out o", "no such file"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_module(monkeypatch, "keel.stages.predict", predict_groups=None)
    put_module(monkeypatch, "keel.inference.tasks", answer_groups=None, open_task=None)
    put_module(monkeypatch, "keel.inference.translate")
    monkeypatch.setattr(compare, "_tasks", lambda given, settings: [])
    put(monkeypatch, "keel.comparing.lineage", "compare_lineage", {})
    assert run(line.split()) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@dataclass
class Usage:
    python: str
    several_texts: bool


@dataclass
class Pairs:
    """A fine-tuned model whose task takes one text, or two."""

    usage: Usage

    @property
    def task(self) -> Pairs:
        return self

    def need_task(self) -> Pairs:
        return self

    def example(self, given: Any, number: int = 0) -> Any:
        return given


@pytest.mark.parametrize(
    ("several", "words", "given"),
    [
        (False, ["one", "two"], ["one", "two"]),
        (False, ["one", "--pair", "two"], [("one", "two")]),
        (True, ['["one", "two"]'], [["one", "two"]]),
    ],
)
def test_predict_takes_texts_pairs_and_lists(
    several: bool,
    words: list[str],
    given: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put_module(monkeypatch, "keel.stages.predict", predict_groups=None)
    put_module(
        monkeypatch,
        "keel.inference.tasks",
        open_task=lambda *args, **options: Pairs(Usage('("A.", "B.")', several)),
        answer_groups=lambda model, groups, report: ([{"given": example} for example in group] for group in groups),
    )
    assert run(["predict", "m", *words]) == 0
    lines = [json.loads(line)["given"] for line in capsys.readouterr().out.splitlines()]
    assert lines == json.loads(json.dumps(given))
    if several:
        assert run(["predict", "m", "one"]) == 2
        assert '["A.", "B."]' in capsys.readouterr().err


class Model:
    def fill(self, text: str, top: int) -> list[list[dict[str, Any]]]:
        return [[{"token": "capital", "id": 5, "probability": 0.625}][:top]] * text.count("[MASK]")


def test_fill_prints_tables_or_json_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(keel, "load", lambda path, **options: asked.append((path, options)) or Model())
    assert run(["fill", "m", "Paris is the [MASK] of [MASK]."]) == 0
    out = capsys.readouterr().out
    assert "62.50 %" in out and "capital" in out and "[MASK] 2" in out
    assert asked == [("m", {"allow_pickle": False, "device": "auto"})]
    monkeypatch.setattr(sys, "stdin", io.StringIO("one [MASK]\n\ntwo [MASK]\r\n"))
    assert run(["fill", "m", "first [MASK]", "-", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["first [MASK]", "one [MASK]", "two [MASK]"]
    assert lines[0]["masks"][0][0]["token"] == "capital"


def test_recipe_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "list"]) == 0
    assert "bert-mini" in capsys.readouterr().out
    assert run(["recipe", "show", "bert-mini", "--set", "training.seed=77", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["training"]["seed"] == 77
    assert run(["recipe", "show", "bert-mnii"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@dataclass
class Update:
    done: int
    total: int
    documents: int


def test_progress_in_a_log_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = common._Lines("corpus", clock=lambda: now[0])
    for step in range(100):
        now[0] = float(step)
        lines(Update(step, 100, 10 * step))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "corpus: 10 % documents 100"
    assert len(said) == 9


def test_quiet_reports_nothing() -> None:
    with common.progress("x", quiet=True) as report:
        assert report is None
