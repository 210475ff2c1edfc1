"""Replaced-token detection: which tokens are replaced, what the generator draws, and what it learns from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from keel.learner.learner import Learner
from keel.objectives.replaced_token import _draw
from keel.values import Rows


def test_replaced_tokens_are_the_ones_that_differ(
    make_learner: Callable[..., Learner], vocabulary: Any, rows: Rows
) -> None:
    learner = make_learner("electra", {"replaced_token": {}}, embedding_width=8)
    batch = learner.prepare(rows, vocabulary)
    original = torch.from_numpy(rows.ids)
    hidden = batch.targets["replaced_token.generator.places"]
    assert (batch.ids[hidden] == vocabulary.mask).all()
    assert torch.equal(original[hidden], batch.targets["replaced_token.generator.answers"])
    with torch.no_grad():
        shown, scores = learner.corrupt(learner.encoder(), batch)
    assert not (shown.ids == vocabulary.mask).any(), "the backbone never sees [MASK]"
    untouched = torch.ones(len(original), dtype=torch.bool)
    untouched[hidden] = False
    assert torch.equal(shown.ids[untouched], original[untouched])
    places = shown.targets["replaced_token.places"]
    assert torch.equal(shown.targets["replaced_token.answers"], (shown.ids != original)[places].long())
    assert 0 < shown.targets["replaced_token.answers"].sum() <= len(hidden)
    assert set(scores) == {"replaced_token.generator"} and scores["replaced_token.generator"].count == len(hidden)


def test_the_generator_draws_from_its_own_distribution() -> None:
    """The same place with many random numbers: shares of tokens are their probabilities."""
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(1)) * 2
    numbers = torch.from_numpy(np.random.default_rng(0).random(20000).astype(np.float32))
    drawn = _draw(logits.expand(20000, -1).contiguous(), numbers)
    shares = torch.bincount(drawn, minlength=12) / 20000
    assert float((shares - logits.softmax(1)[0]).abs().max()) < 0.015


def test_the_generator_learns_nothing_from_the_discriminator(
    make_learner: Callable[..., Learner], vocabulary: Any, rows: Rows
) -> None:
    learner = make_learner("electra", {"replaced_token": {}}, embedding_width=8)
    learner(learner.prepare(rows, vocabulary))["replaced_token"].loss.backward()
    objective: Any = learner.objectives["replaced_token"]
    assert all(p.grad is None for p in objective.generator.parameters())
    assert learner.backbone.token_embeddings().grad is not None


def test_detecting_and_predicting_have_their_own_weights(
    make_learner: Callable[..., Learner], vocabulary: Any, rows: Rows
) -> None:
    """As published: 50 for the discriminator, 1 for the generator."""
    learner = make_learner("electra", {"replaced_token": {}}, embedding_width=8)
    with torch.no_grad():
        scores = learner(learner.prepare(rows, vocabulary))
    assert {name: score.weight for name, score in scores.items()} == {
        "replaced_token": 50.0,
        "replaced_token.generator": 1.0,
    }
