"""The rate and the epochs of a run that leaves them open."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.finetuning.defaults import EPOCHS, HIGHEST_RATE, choose, epochs_for, rate_for
from keel.hugging_face.folder import load_model
from keel.recipe import load_task
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain

Labelled = Callable[[str, int, int], Path]


@pytest.mark.parametrize(
    ("layers", "width", "lowest", "highest"),
    [
        (24, 1024, 1e-5, 3e-5),  # BERT-Large: 2e-5 to 5e-5 in its paper, at most 3e-5 where it is to converge
        (12, 768, 2e-5, 5e-5),  # BERT-Base, as published
        (4, 256, 1e-4, 3e-4),  # BERT-Mini as published with the small BERTs: 3e-5 to 3e-4
        (2, 128, 1e-4, 1e-3),
    ],
)
def test_published_encoders_get_rates_that_were_recommended_for_them(
    layers: int, width: int, lowest: float, highest: float
) -> None:
    assert lowest <= rate_for(layers, width, here=False) <= highest


@given(st.integers(1, 48), st.integers(16, 4096))
def test_a_larger_encoder_never_has_a_higher_rate(layers: int, width: int) -> None:
    for here in (False, True):
        rate = rate_for(layers, width, here)
        assert 0 < rate_for(layers + 1, width, here) <= rate <= HIGHEST_RATE
        assert rate_for(layers, 2 * width, here) <= rate
        assert rate_for(layers, width, False) <= rate_for(layers, width, True)


@given(st.integers(1, 10**7), st.integers(1, 512))
def test_few_examples_are_seen_more_often(examples: int, batch: int) -> None:
    epochs = epochs_for(examples, batch)
    assert EPOCHS[0] <= epochs <= EPOCHS[1]
    assert epochs_for(examples + batch, batch) <= epochs


def test_what_the_recipe_says_counts() -> None:
    recipe = load_task("classify", ["training.learning_rate=7e-5", "training.epochs=2"])
    chosen, line = choose(recipe.training, load_encoder(), frozen=False, here=True, examples=100)
    assert (chosen.learning_rate, chosen.epochs, line) == (7e-5, 2, "")


def test_a_frozen_encoder_has_a_rate_of_its_own() -> None:
    recipe = load_task("classify")
    chosen, line = choose(recipe.training, load_encoder(), frozen=True, here=False, examples=10**6)
    assert (chosen.learning_rate, chosen.epochs) == (1e-3, 3)
    assert line.startswith("rate 0.001 for a frozen encoder; 3 epochs for 1,000,000 examples")


def load_encoder() -> Any:
    from keel.recipe import load

    return load("bert-base").model.backbone


def test_the_choice_is_said_and_saved(finished_run: Path, labelled: Labelled, tmp_path: Path) -> None:
    said: list[str] = []
    finetune(
        str(finished_run),
        "classify",
        train=str(labelled("classify", 1, 24)),
        out=str(tmp_path / "out"),
        overrides=["training.epochs=1", "training.log_steps=1"],
        report=said.append,
        quiet=True,
    )
    assert any(line.startswith("rate 0.001 for 1 layer of width 32, pretrained here") for line in said)
    saved = load_task(str(tmp_path / "out" / "recipe.yaml"))
    assert saved.training.learning_rate == 1e-3
    rates = [json.loads(line).get("learning_rate", 0) for line in (tmp_path / "out" / "metrics.jsonl").open()]
    assert 0 < max(rates) <= 1e-3


def test_a_published_encoder_stays_one_however_it_is_trained_further(
    finished_run: Path, corpus_path: Path, tiny: tuple[str, ...], labelled: Labelled, tmp_path: Path
) -> None:
    """Continued pretraining of a published model, or a task, does not make it one that has seen little text; a task on
    an encoder of one's own does not make it a published one."""
    data = str(labelled("classify", 1, 16))

    def continued(start: Path, name: str) -> str:
        out = str(tmp_path / name)
        changes = [*tiny, "training.steps=1"]
        pretrain("bert-tiny", corpus=str(corpus_path), out=out, init=str(start), overrides=changes, quiet=True)
        return out

    def tuned(start: str, name: str) -> str:
        out = str(tmp_path / name)
        finetune(start, "classify", train=data, out=out, overrides=["training.steps=1"], quiet=True)
        return out

    ours = ("checkpoints", "manifest.json")
    published = shutil.copytree(finished_run, tmp_path / "published", ignore=shutil.ignore_patterns(*ours))
    for here, start in ((False, published), (True, finished_run)):
        more = continued(start, f"more-{here}")
        for one in (start, more, tuned(more, f"tuned-{here}")):
            assert load_model(one).pretrained_here == here, one
