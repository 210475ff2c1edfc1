"""Runs that must refuse to go on, and what they must leave alone: other data, other people's files, NaN."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keel.cli.main import run
from keel.errors import UserError
from keel.files.folders import verify_folder
from keel.stages.corpus import build
from keel.stages.pretrain import pretrain
from keel.stages.tokenizer import train as train_tokenizer

Settings = tuple[str, ...]


def write_texts(path: Path, word: str) -> None:
    lines = [json.dumps({"text": f"The {word} {n} watches the keel at dawn. Every {word} forgets."}) for n in range(60)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def made(tmp_path: Path, tiny: Settings) -> Callable[..., dict[str, Any]]:
    """Trains in tmp_path on a corpus of its own: `made()`, then `made(resume=True, steps=6)`."""
    write_texts(tmp_path / "a.jsonl", "gull")
    train_tokenizer([str(tmp_path / "a.jsonl")], tmp_path / "tok", vocab_size=120)
    build([str(tmp_path / "a.jsonl")], str(tmp_path / "tok"), str(tmp_path / "corpus"), workers=1, held_out=0.1)

    def go(resume: bool = False, steps: int = 4, more: Settings = (), recipe: str = "bert-tiny") -> dict[str, Any]:
        short = (f"training.steps={steps}", "training.checkpoint_steps=2", *more)
        overrides = [*(tiny if recipe == "bert-tiny" else ()), *short]
        out, corpus = str(tmp_path / "out"), str(tmp_path / "corpus")
        return pretrain(recipe, corpus=corpus, out=out, overrides=overrides, resume=resume, quiet=True, threads=1)

    return go


@pytest.mark.parametrize("change", ["other words", "other order", "other tokenizer", "other held-out part", "more"])
def test_resuming_on_other_data_is_refused(made: Callable[..., Any], change: str, tmp_path: Path) -> None:
    made()
    (tmp_path / "corpus").rename(tmp_path / "before")
    source, tokenizer, held_out = tmp_path / "a.jsonl", tmp_path / "tok", 0.1
    lines = source.read_text().splitlines(keepends=True)
    if change == "other words":  # of the same length: corpus.json stays the same to the byte
        source.write_text("".join(lines).replace("gull", "lull"))
    elif change == "other order":
        source.write_text("".join(reversed(lines)))
    elif change == "other tokenizer":
        tokenizer = tmp_path / "tok2"
        write_texts(tmp_path / "b.jsonl", "sailor")
        train_tokenizer([str(tmp_path / "b.jsonl")], tokenizer, vocab_size=120)
    elif change == "other held-out part":
        held_out = 0.3
    else:
        source.write_text("".join([*lines, lines[0]]))
    build([str(source)], str(tokenizer), str(tmp_path / "corpus"), workers=1, held_out=held_out)
    with pytest.raises(UserError, match=r"other data|another tokenizer|another recipe"):
        made(resume=True, steps=6)
    shutil.rmtree(tmp_path / "corpus")
    (tmp_path / "before").rename(tmp_path / "corpus")
    assert made(resume=True, steps=6)["step"] == 6


def test_the_same_texts_built_again_are_the_same_data(made: Callable[..., Any], tmp_path: Path) -> None:
    made()
    shutil.rmtree(tmp_path / "corpus")
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "copied.jsonl")
    copied, corpus = str(tmp_path / "copied.jsonl"), str(tmp_path / "corpus")
    build([copied], str(tmp_path / "tok"), corpus, workers=1, held_out=0.1)
    assert made(resume=True, steps=6)["step"] == 6


def test_copies_beside_checkpoints_and_an_edited_card_are_kept(made: Callable[..., Any], tmp_path: Path) -> None:
    made()
    out = tmp_path / "out"
    last = max((out / "checkpoints").iterdir())
    names = ["step-00000002-best-so-far", "step-00000004.bak", "step-00000099-copy", "my-notes"]
    for name in names:
        shutil.copytree(last, out / "checkpoints" / name)
    (out / "README.md").write_text("my own words")
    made(resume=True, steps=10)
    assert {p.name for p in (out / "checkpoints").iterdir()} == {*names, "step-00000008", "step-00000010"}
    assert (out / "README.md").read_text() == "my own words"
    verify_folder(out)


def test_a_file_in_the_way_of_the_finished_model_is_not_replaced(made: Callable[..., Any], tmp_path: Path) -> None:
    made()
    out = tmp_path / "out"
    shutil.rmtree(out)
    (out / "checkpoints").mkdir(parents=True)
    (out / "recipe.yaml").write_text("")
    # As a person might, while the run is going on.
    from keel.training.run_folder import RunFolder

    begin = RunFolder.begin

    def begin_and_be_disturbed(self: RunFolder, recipe_yaml: str) -> None:
        begin(self, recipe_yaml)
        (out / "config.json").write_text("mine")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "begin", begin_and_be_disturbed)
        with pytest.raises(UserError, match=r"config\.json.*--resume"):
            made()
    assert (out / "config.json").read_text() == "mine"
    (out / "config.json").unlink()
    assert made(resume=True)["step"] == 4


def test_resuming_a_finished_run_leaves_nothing_behind(made: Callable[..., Any], tmp_path: Path) -> None:
    """The folder still opens after a copy: no temporary link is in its manifest."""
    made()
    for _ in range(2):
        made(resume=True)
    out = tmp_path / "out"
    assert not list(out.rglob(".writing-*"))
    assert ".writing-" not in (out / "manifest.json").read_text()
    verify_folder(Path(shutil.copytree(out, tmp_path / "copy")))


@pytest.mark.parametrize(
    ("recipe", "rate"), [("bert-tiny", "1e38"), ("word2vec", "1e30")], ids=["gradients", "updates of its own"]
)
def test_no_model_that_is_not_finite_is_saved(made: Callable[..., Any], recipe: str, rate: str, tmp_path: Path) -> None:
    if recipe == "word2vec":
        shutil.rmtree(tmp_path / "corpus")
        words = ["tokenizer", "train", str(tmp_path / "a.jsonl"), "--kind", "words", "--vocab-size", "90"]
        assert run([*words, "--out", str(tmp_path / "words"), "-q"]) == 0
        source, tokenizer = [str(tmp_path / "a.jsonl")], str(tmp_path / "words")
        build(source, tokenizer, str(tmp_path / "corpus"), workers=1, held_out=0.1)
    with pytest.raises(UserError, match=r"not (been )?finite|NaN") as caught:
        made(recipe=recipe, steps=200, more=(f"training.learning_rate={rate}", "training.warmup=0"))
    assert "\n" not in str(caught.value)
    out = tmp_path / "out"
    assert not (out / "model.safetensors").exists()
    for checkpoint in (out / "checkpoints").glob("step-*"):
        import keel

        keel.load(str(checkpoint))  # would refuse a tensor that is not finite
