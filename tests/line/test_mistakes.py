"""What people get wrong: each gives one line that names the thing and the cure, and exit code 2."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keel.cli.main import run

Keel = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def pretraining(pretrain: list[str], tmp_path: Path, refused: Callable[..., str]) -> Callable[..., str]:
    """A pretraining command with one mistake in it; nothing may be written."""

    def check(*mistake: object) -> str:
        line = refused(*pretrain, "--out", tmp_path / "model", "--quiet", *mistake)
        assert not (tmp_path / "model").exists(), "a mistake costs nothing"
        return line

    return check


def test_a_misspelt_verb_through_the_real_command(keel: Keel, one_line: Callable[[Any], str]) -> None:
    assert "'pretrain'" in one_line(keel("pretrian", "bert-tiny"))
    assert "'build'" in one_line(keel("corpus", "biuld"))


def test_a_misspelt_key_through_the_real_command(
    keel: Keel, pretrain: list[str], tmp_path: Path, one_line: Callable[[Any], str]
) -> None:
    line = one_line(keel(*pretrain, "--out", tmp_path / "model", "--set", "training.lerning_rate=1"))
    assert "training.lerning_rate" in line and "learning_rate" in line


def test_a_misspelt_recipe(refused: Callable[..., str], corpus_path: Path, tmp_path: Path) -> None:
    line = refused("pretrain", "bert-tinny", "--corpus", corpus_path, "--out", tmp_path / "m")
    assert "'bert-tinny'" in line and "'bert-tiny'" in line
    assert "bert-mini" in refused("recipe", "show", "bert-mimi")


@pytest.mark.parametrize(
    "override",
    [
        "training.steps=0",
        "training.learning_rate=-1",
        "model.backbone.width=33",
        "model.objectives.masked_lm.mask_prob=2",
        "data.length=4096",
        "training.precision=int8",
        "model.objectives=3",
        "training.steps",
        "nonsense.key=1",
    ],
)
def test_an_impossible_recipe(pretraining: Callable[..., str], override: str) -> None:
    key = override.partition("=")[0].rpartition(".")[2]
    line = pretraining("--set", override)
    assert key in line or "nonsense" in line


def test_missing_paths(
    refused: Callable[..., str], pretraining: Callable[..., str], text_file: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "no-such"
    assert str(missing) in pretraining("--corpus", missing)
    assert str(missing) in pretraining("--tokenizer", missing)
    assert str(missing) in pretraining("--init", missing)
    assert str(missing) in refused("fill", missing, "a [MASK]")
    assert str(missing) in refused("corpus", "build", missing, "--tokenizer", tokenizer_path, "--out", tmp_path / "C")
    assert str(missing) in refused("corpus", "build", text_file, "--tokenizer", missing, "--out", tmp_path / "C")
    assert str(missing) in refused("corpus", "inspect", missing)
    assert str(missing) in refused("tokenizer", "train", missing, "--out", tmp_path / "T")
    assert str(missing) in refused("tokenizer", "inspect", missing)
    assert "sea.jsonl" in refused("tokenizer", "train", text_file.with_name("see.jsonl"), "--out", tmp_path / "T")
    assert not (tmp_path / "C").exists() and not (tmp_path / "T").exists()


@pytest.mark.parametrize("content", [b"", b"\n \n\n", bytes(range(256)) * 8], ids=["empty", "blank", "binary"])
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv"])
def test_files_without_text(
    refused: Callable[..., str], tokenizer_path: Path, tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"odd{suffix}"
    path.write_bytes(content)
    assert path.name in refused("tokenizer", "train", path, "--out", tmp_path / "T")
    assert path.name in refused("corpus", "build", path, "--tokenizer", tokenizer_path, "--out", tmp_path / "C", "-q")


def test_a_corpus_built_with_another_tokenizer(
    pretraining: Callable[..., str], corpus_path: Path, tmp_path: Path
) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "keel"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "vocab.txt").write_text("\n".join(words))
    line = pretraining("--tokenizer", tmp_path / "other")
    assert str(corpus_path) in line and str(tmp_path / "other") in line
    line = pretraining("--set", "model.backbone.vocabulary=21128")
    assert "21128" in line


def test_folders_that_are_something_else(
    refused: Callable[..., str],
    pretraining: Callable[..., str],
    tokenizer_path: Path,
    corpus_path: Path,
    tmp_path: Path,
) -> None:
    assert str(tokenizer_path) in pretraining("--corpus", tokenizer_path)
    assert str(corpus_path) in refused("fill", corpus_path, "a [MASK]")
    (tmp_path / "nothing").mkdir()
    assert "nothing" in refused("fill", tmp_path / "nothing", "a [MASK]")
    assert "--resume" in pretraining("--resume")


def test_questions_a_model_cannot_answer(refused: Callable[..., str], finished_run: Path) -> None:
    assert "[MASK]" in refused("fill", finished_run, "no blank here")
    assert "positions" in refused("fill", finished_run, "[MASK] " + "the keel " * 100)


def test_a_device_that_is_not_there(pretraining: Callable[..., str]) -> None:
    import torch

    if not torch.cuda.is_available():
        assert "cuda" in pretraining("--device", "cuda")
    assert "gpu9" in pretraining("--device", "gpu9")


def test_a_run_is_not_walked_over(refused: Callable[..., str], pretrain: list[str], finished_run: Path) -> None:
    line = refused(*pretrain, "--out", finished_run, "--quiet")
    assert str(finished_run) in line and "--resume" in line


def test_nothing_else_is_walked_over_either(refused: Callable[..., str], pretrain: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "recipe.yaml").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "other" / "checkpoints" / "epoch-1").mkdir(parents=True)
    for out in ("mine", "file", "other"):
        line = refused(*pretrain, "--out", tmp_path / out, "--quiet")
        assert f"{tmp_path / out}: already there and not an empty folder" in line
    line = refused("embed", tmp_path, "--file", tmp_path / "file", "--out", tmp_path / "file")
    assert f"{tmp_path / 'file'}: already there" in line
    assert (tmp_path / "mine" / "recipe.yaml").read_text() == (tmp_path / "file").read_text() == "mine"


def test_resuming_something_else(
    refused: Callable[..., str], pretrain: list[str], finished_run: Path, tmp_path: Path
) -> None:
    """Another model, or another corpus, under the same folder is refused, not silently mixed."""
    line = refused(*pretrain, "--out", finished_run, "--resume", "--set", "model.backbone.layers=2", "--quiet")
    assert str(finished_run) in line and "recipe" in line


def test_a_strategy_for_long_texts_that_the_task_does_not_have(
    refused: Callable[..., str], finished_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.conll").write_text("the O\nkeel B-SHIP\n\na O\nmast B-PART\n\n" * 4)
    tune = ["finetune", finished_run, "tag", "--train", tmp_path / "train.conll", "--out", tmp_path / "tagger"]
    assert "--long tail: the task tag has windows only; omit --long" in refused(*tune, "--long", "tail", "--quiet")
    assert not (tmp_path / "tagger").exists()
    assert run([str(part) for part in [*tune, "--long", "windows", "--quiet", "--set", "data.length=24"]]) == 0
    wrong = ["evaluate", tmp_path / "tagger", "--data", tmp_path / "train.conll"]
    assert "--long head: the task tag has windows only" in refused(*wrong, "--long", "head")
    assert "choose one of head, tail, head-tail, windows" in refused(*wrong, "--long", "middle")
