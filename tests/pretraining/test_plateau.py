"""The level that a model without context cannot get below, and what a run says while it is above it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from keel import recipe as recipes
from keel.objectives.masked_lm import MaskedLM, MaskedLMConfig
from keel.pretraining import plateau
from keel.pretraining.data import open_data
from keel.pretraining.held_out import prepare_held_out
from keel.pretraining.plateau import LEVEL, MARGIN, Plateau, advice, losses_without_context, remark
from keel.stages.corpus import build
from keel.stages.pretrain import _fresh, pretrain
from keel.values import Batch, Rows

SPECIAL, ORDINARY = 5, 12
TOKENIZER = SimpleNamespace(size=SPECIAL + ORDINARY, pad=0, unk=1, cls=2, sep=3, mask=4)


def masked(frequency: np.ndarray, config: MaskedLMConfig, count: int) -> Batch:
    """One row of so many tokens drawn with these frequencies, and masked."""
    source = np.random.default_rng(0)
    ids = np.concatenate([[2], source.choice(ORDINARY, count, p=frequency) + SPECIAL, [3]])
    special = np.isin(ids, [2, 3])
    rows = Rows(ids, (count + 2,), np.zeros(count + 2, np.int64), special, ~special, np.array([7], np.uint64), {})
    objective = MaskedLM.__new__(MaskedLM)
    torch.nn.Module.__init__(objective)
    objective.config = config
    rows, targets = objective.prepare(rows, TOKENIZER)  # type: ignore[arg-type]
    return Batch.of(rows, targets)


def conditional_entropy(frequency: np.ndarray, mask: float, kept: float, random: float) -> float:
    """H(answer | what is shown), from the joint distribution written out: [MASK] is the last column."""
    joint = np.zeros((ORDINARY, ORDINARY + 1))
    for answer in range(ORDINARY):
        joint[answer, -1] += frequency[answer] * mask
        joint[answer, answer] += frequency[answer] * kept
        joint[answer, :-1] += frequency[answer] * random / ORDINARY
    given = joint / np.maximum(joint.sum(0), 1e-300)
    return float(-(joint * np.log(np.maximum(given, 1e-300))).sum())


@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.1), (1.0, 0.0), (0.8, 0.0), (0.5, 0.5), (0.0, 0.3)])
def test_the_level_is_the_entropy_of_the_answer_given_what_is_shown(mask: float, random: float) -> None:
    """So it is the least that a model can reach which reads nothing but the token at the place itself."""
    frequency = 1 / np.arange(1, ORDINARY + 1)
    frequency /= frequency.sum()
    config = MaskedLMConfig(mask_prob=0.9, mask_replace_prob=mask, random_replace_prob=random)
    batch = masked(frequency, config, 60_000)
    counts = np.zeros(TOKENIZER.size, np.int64)
    counts[SPECIAL:] = 1e12 * frequency
    counts[:SPECIAL] = 1e13  # never selected, so their number does not matter
    losses = losses_without_context(batch, plateau._mixture(config), counts, TOKENIZER)  # type: ignore[arg-type]
    assert len(losses) == round(0.9 * 60_000) and (losses >= 0).all() and np.isfinite(losses).all()
    error = losses.std() / np.sqrt(len(losses))
    expected = conditional_entropy(frequency, mask, 1 - mask - random, random)
    assert losses.mean() == pytest.approx(expected, abs=4 * error + 1e-9)


def make(corpus_path: Path, recipe: str, *overrides: str) -> Plateau:
    data = open_data(recipes.load(recipe, list(overrides)), str(corpus_path), None)
    learner = _fresh(data)
    return Plateau.of(learner, data, prepare_held_out(learner, data, torch.device("cpu"))[1])


def test_a_part_of_the_rows_is_compared_with_the_level_on_that_part(corpus_path: Path, tiny: tuple[str, ...]) -> None:
    found = make(corpus_path, "bert-tiny", *tiny, "training.evaluation_tokens=1024")
    assert len(found.parts) > 2
    whole, half = found.figures({"masked_lm.loss": 9.0}), found.figures({"masked_lm.loss": 9.0}, 2)
    sums, counts = zip(*found.parts, strict=True)
    assert whole[LEVEL] == pytest.approx(sum(sums) / sum(counts)) and half[LEVEL] == pytest.approx(
        sum(sums[:2]) / sum(counts[:2])
    )
    level = whole[LEVEL]
    assert [found.figures({"masked_lm.loss": level + by})["plateau"] for by in (0, -MARGIN + 0.01, -MARGIN - 0.01)] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("recipe", "change"),
    [
        ("gpt-mini", ""),
        ("electra-mini", ""),
        ("macbert-mini", ""),  # similar words in place of [MASK]
        ("tiny-mask-always", "data.eval_recipe=bert-tiny"),  # another mixture than it is trained with
    ],
)
def test_nothing_is_said_where_the_level_means_nothing(
    corpus_path: Path, tiny: tuple[str, ...], recipe: str, change: str
) -> None:
    changes = [*tiny, "model.backbone.positions=128", *([change] if change else [])]
    found = make(corpus_path, recipe, *changes)
    assert found == Plateau() and found.figures({"masked_lm.loss": 9.0}) == {}


def test_what_is_said_depends_on_the_step_and_the_speed() -> None:
    def said(step: int, seconds: float, on_it: bool = True) -> str:
        return remark({"step": step, "elapsed": seconds, "plateau": on_it})

    assert said(100, 60.0, on_it=False) == remark({"step": 3, "elapsed": 1.0}) == ""
    assert "modern-mini" in advice("bert") and "modern-mini" not in advice("modern"), "no advice to do what was done"
    assert "300 to 1,000 steps, in 2 to 9 minutes at this speed" in said(100, 60.0)
    assert "within 5 minutes at this speed" in said(500, 300.0)
    assert "within 1 minute at this speed" in said(290, 1.0)
    assert said(1200, 60.0).endswith("so this one is late")


@pytest.mark.parametrize("held_out", [0.1, 0.0])
def test_a_run_says_whether_it_ends_on_the_plateau(
    text_file: Path,
    tokenizer_path: Path,
    tiny: tuple[str, ...],
    tmp_path: Path,
    held_out: float,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With and without held-out documents; then the curve in the report has the level, too."""
    build([str(text_file)], str(tokenizer_path), str(tmp_path / "corpus"), workers=1, held_out=held_out)

    def run(out: str, steps: int, *more: str) -> dict[str, Any]:
        overrides = [*tiny, f"training.steps={steps}", *more]
        return pretrain("bert-tiny", corpus=str(tmp_path / "corpus"), out=str(tmp_path / out), overrides=overrides)

    short = run("short", 20)
    assert short["plateau"] is True and "modern-mini" in short["advice"]
    assert short[LEVEL] == pytest.approx(4.0, abs=1.0), "the words of these texts are few and frequent"
    if held_out:
        entries = [json.loads(line) for line in (tmp_path / "short" / "metrics.jsonl").read_text().splitlines()]
        assert all(entry["plateau"] for entry in entries if entry["kind"] == "evaluation")
        assert "plateau: it predicts from word frequencies" in capfd.readouterr().err
        assert 'data-name="without context"' in (tmp_path / "short" / "report.html").read_text()
    assert "modern-mini" in (tmp_path / "short" / "report.html").read_text()
    better = ("model.backbone.layers=2", "training.learning_rate=5e-3", "training.batch_tokens=512", "data.length=24")
    long = run("long", 300, *better)
    assert long["plateau"] is False and "advice" not in long
