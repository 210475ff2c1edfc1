"""`keel evaluate --corpus`: the losses are those of the run and of transformers, and vocabularies can be compared."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from keel.errors import UserError
from keel.pretraining.data import open_data
from keel.pretraining.held_out import evaluate_on_corpus
from keel.recipe import load
from keel.stages.corpus import build
from keel.stages.pretrain import pretrain
from keel.stages.surgery import extend_vocabulary
from keel.tokenizers.folder import open_tokenizer

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_figures_are_those_the_run_ended_with(
    keel: Command, tiny: tuple[str, ...], corpus_path: Path, tmp_path: Path
) -> None:
    changes = [*tiny, "training.steps=4"]
    ended = pretrain("roberta-mini", corpus=str(corpus_path), out=str(tmp_path / "m"), overrides=changes, quiet=True)
    own = str(tmp_path / "m" / "recipe.yaml")
    said = keel("evaluate", tmp_path / "m", "--corpus", corpus_path, "--eval-recipe", own, "--json")
    found = json.loads(said.stdout)
    for name in ("masked_lm.loss", "masked_lm.accuracy"):
        assert found[name] == pytest.approx(ended[name], rel=1e-5)
    per_character = found["masked_lm.loss"] * found["tokens"] / found["characters"]
    assert found["masked_lm.loss_per_character"] == pytest.approx(per_character)


def test_a_causal_loss_is_that_of_transformers(tiny: tuple[str, ...], corpus_path: Path, tmp_path: Path) -> None:
    import transformers

    changes = [*tiny, "training.steps=2"]
    pretrain("gpt-mini", corpus=str(corpus_path), out=str(tmp_path / "m"), overrides=changes, quiet=True)
    found = evaluate_on_corpus(str(tmp_path / "m"), str(corpus_path))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    data = open_data(load("gpt-mini", ["data.length=64"]), str(corpus_path), None)
    loss = count = 0.0
    for rows in data.held_out:
        for ids in torch.from_numpy(rows.ids).split(list(rows.lengths)):
            with torch.no_grad():
                logits = theirs(ids[None]).logits[0]
            loss += float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum"))
            count += len(ids) - 1
    assert found["causal_lm.loss"] == pytest.approx(loss / count, rel=1e-4)


def test_more_words_are_fewer_tokens_for_the_same_characters(finished_run: Path, tmp_path: Path) -> None:
    text = tmp_path / "ships.txt"
    words = ("spinnaker", "bowsprit", "halyard")
    orders = itertools.permutations(["the", "keel", "watches", *words])
    text.write_text("\n".join(" ".join(order) for order, _ in zip(orders, range(300), strict=False)))
    extend_vocabulary(str(finished_run), words, str(tmp_path / "wide"))
    found = {}
    for name, model in {"narrow": str(finished_run), "wide": str(tmp_path / "wide")}.items():
        build([str(text)], model, str(tmp_path / f"corpus-{name}"), documents="line", held_out=0.2)
        found[name] = evaluate_on_corpus(model, str(tmp_path / f"corpus-{name}"))
    lines = text.read_text().lower().splitlines()
    for name, model in {"narrow": finished_run, "wide": tmp_path / "wide"}.items():
        encoded = open_tokenizer(model).encode(lines)
        assert len({len(ids) for ids in encoded}) == 1  # all lines have as many tokens
        expected = len(encoded[0]) / (len(lines[0]) + 1)
        assert found[name]["tokens"] / found[name]["characters"] == pytest.approx(expected, rel=0.01)
    with pytest.raises(UserError, match="another tokenizer"):
        evaluate_on_corpus(str(finished_run), str(tmp_path / "corpus-wide"))


def test_mistakes_are_one_line(keel: Command, finished_run: Path, corpus_path: Path, tmp_path: Path) -> None:
    one_of = "needs --data FILE for a fine-tuned model, or --corpus DIR for a pretrained one"
    for words, expected in [
        ((), one_of),
        (("--data", "x", "--corpus", "y"), one_of),
        (("--corpus", corpus_path, "--eval-recipe", "gpt-mini"), "no head for causal_lm"),
        (("--corpus", tmp_path), "corpus"),
    ]:
        said = keel("evaluate", finished_run, *words, check=False)
        assert said.returncode == 2 and expected in said.stderr and "Traceback" not in said.stderr
