"""The whole line through the real command: text in, a model that answers out; each hand-over is read by the next."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keel.cli.main import run
from keel.errors import Stopped
from keel.hugging_face.folder import load_model
from keel.stages import pretrain as stage

Keel = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def line(
    keel: Keel, text_file: Path, tiny_options: list[str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Every verb once, as a person would type it, in one folder with relative paths; what each printed as JSON."""
    folder = tmp_path_factory.mktemp("line")
    (folder / "texts").mkdir()
    (folder / "texts" / "sea.jsonl").write_text(text_file.read_text(encoding="utf-8"), encoding="utf-8")
    quick = ["--set", "training.evaluate_steps=10", *tiny_options]
    commands = {
        "train": ["tokenizer", "train", "texts", "--vocab-size", 300, "--out", "T"],
        "tokenizer": ["tokenizer", "inspect", "T", "texts"],
        "build": ["corpus", "build", "texts", "--tokenizer", "T", "--out", "C", "--held-out", 0.1, "--workers", 2],
        "corpus": ["corpus", "inspect", "C", "--examples", 2, "--recipe", "bert-tiny"],
        "pretrain": ["pretrain", "bert-tiny", "--corpus", "C", "--tokenizer", "T", "--out", "M", "--steps", 30, *quick],
        "fill": ["fill", "M", "The old [MASK] watches the [MASK].", "老船长[MASK]着龙骨。", "--top", 3],
    }
    printed: dict[str, Any] = {"folder": folder}
    for name, command in commands.items():
        done = keel(*command, "--json", cwd=folder)
        assert done.returncode == 0, (name, done.stderr)
        printed[name] = [json.loads(answer) for answer in done.stdout.splitlines()]
        assert "Traceback" not in done.stderr
    return printed


def test_the_tokenizers_report(line: dict[str, Any]) -> None:
    (trained,), (seen,) = line["train"], line["tokenizer"]
    assert trained["documents"] == 240 and 100 < trained["size"] <= 300
    assert seen["unknown_share"] == 0 and not seen["unknown_characters"], "it was trained on this text"
    assert seen["tokens_per_word"] >= 1


def test_the_corpus_adds_up_and_shows_what_the_model_sees(line: dict[str, Any]) -> None:
    (account,), (seen,) = line["build"], line["corpus"]
    assert account["read"] == account["kept"] + sum(account["rejected"].values()) == 240
    assert (seen["documents"], seen["tokens"]) == (240, account["tokens"])
    assert sum(group["documents"] for group in seen["lengths"]) == 240
    assert 0 < seen["held_out_documents"] < 60
    assert len(seen["examples"]) == 2
    for row in seen["examples"]:
        assert row["tokens"][0] == "[CLS]" and row["tokens"].count("[SEP]") == 2
        assert row["next_sentence"] in ("follows", "random")
        hidden = [(token, mark) for token, mark, target in zip(row["tokens"], row["marks"], row["targets"]) if target]  # noqa: B905
        assert len(hidden) == max(1, round(0.15 * (len(row["tokens"]) - 3)))
        assert all((token == "[MASK]") == (mark == "mask") for token, mark in hidden)


def test_the_run_leaves_a_model_folder_with_its_history(line: dict[str, Any]) -> None:
    (result,) = line["pretrain"]
    out = line["folder"] / result["out"]
    assert result["step"] == 30 and {"masked_lm.loss", "next_sentence.accuracy"} <= result.keys()
    model_files = "config.json model.safetensors tokenizer.json tokenizer_config.json vocab.txt special_tokens_map.json"
    for name in (*model_files.split(), "README.md", "recipe.yaml", "metrics.jsonl", "report.html", "manifest.json"):
        assert (out / name).stat().st_size > 0, name
    lines = [json.loads(entry) for entry in (out / "metrics.jsonl").read_text().splitlines()]
    assert [e["step"] for e in lines if e["kind"] == "train"] == list(range(1, 31))
    assert [e["step"] for e in lines if e["kind"] == "evaluation"] == [10, 20, 30]
    tokens = [e["tokens"] for e in lines if e["kind"] == "train"]
    assert all(0 < after - before <= 256 for before, after in zip([0, *tokens], tokens, strict=False))
    assert result["masked_lm.loss"] == lines[-1]["masked_lm.loss"]


def test_the_answers_are_ranked_probabilities(line: dict[str, Any]) -> None:
    english, chinese = line["fill"]
    assert [len(text["masks"]) for text in (english, chinese)] == [2, 1]
    for ranked in (*english["masks"], *chinese["masks"]):
        chances = [answer["probability"] for answer in ranked]
        assert len(ranked) == 3 and chances == sorted(chances, reverse=True) and 0 < sum(chances) <= 1


def test_the_recipe_beside_the_result_can_be_passed_back_in(
    line: dict[str, Any], fingerprints: Callable[[Path], tuple[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    """Twice the same recipe on the same corpus: the same weights, bit for bit."""
    folder = line["folder"]
    options = ["--corpus", str(folder / "C"), "--out", str(folder / "again"), "--quiet", "--json"]
    assert run(["pretrain", str(folder / "M" / "recipe.yaml"), *options]) == 0
    out, err = capfd.readouterr()
    assert err == "" and json.loads(out)["step"] == 30, "quiet means quiet, and the result is on stdout alone"
    assert fingerprints(folder / "again") == fingerprints(folder / "M")


def test_a_model_can_start_from_another(line: dict[str, Any], tiny: tuple[str, ...], tmp_path: Path) -> None:
    """`--init`: the first step's loss is that of the model it starts from, not that of fresh weights."""

    def first_loss(name: str, init: str | None) -> float:
        corpus, out = str(line["folder"] / "C"), tmp_path / name
        overrides = [*tiny, "training.steps=1", "model.backbone.dropout=0", "model.backbone.attention_dropout=0"]
        stage.pretrain("bert-tiny", corpus=corpus, out=str(out), overrides=overrides, init=init, quiet=True)
        return float(json.loads((out / "metrics.jsonl").read_text().splitlines()[0])["loss"])

    assert first_loss("warm", str(line["folder"] / "M")) < first_loss("cold", None) - 0.1


def test_a_finished_run_can_be_made_longer_and_is_usable_meanwhile(
    finished_run: Path, corpus_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed for more steps and stopped half-way, the folder still is a model that opens."""
    out = Path(shutil.copytree(finished_run, tmp_path / "longer"))
    recipe = str(out / "recipe.yaml")
    steps: list[int] = []
    source = stage.Data.micro_batches

    def interrupted(self: Any, progress: float, cursors: Any) -> Any:
        steps.append(1)
        if len(steps) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return source(self, progress, cursors)

    with monkeypatch.context() as patch:
        patch.setattr(stage.Data, "micro_batches", interrupted)
        with pytest.raises(Stopped):
            stage.pretrain(
                recipe, corpus=str(corpus_path), out=str(out), overrides=["training.steps=50"], resume=True, quiet=True
            )
    load_model(out)
    done = stage.pretrain(
        recipe, corpus=str(corpus_path), out=str(out), overrides=["training.steps=50"], resume=True, quiet=True
    )
    assert done["step"] == 50
    load_model(out)
