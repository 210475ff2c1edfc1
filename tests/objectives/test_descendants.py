"""What the descendants' objectives promise: replaced tokens, similar tokens, and never a look ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from keel import catalog
from keel.corpus.choose import special_ids
from keel.interfaces import Batch, Rows
from keel.objectives.masked_lm import CANDIDATES
from keel.training.learner import Learner
from keel.training.model_folder import assemble

SIZE = 90
SMALL = {"vocabulary": SIZE, "layers": 2, "width": 16, "heads": 2, "feed_forward": 24, "positions": 64}


class Vocabulary:
    size, pad, unk, cls, sep, mask, between = SIZE, 0, 1, 2, 3, 4, 1


def make(kind: str, objectives: dict[str, Any], **options: Any) -> Learner:
    backbone = catalog.find("backbones", kind)
    built = backbone(backbone.Config(**SMALL, dropout=0.0, attention_dropout=0.0, **options))
    built.start(torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    return assemble(built, objectives).eval()


@pytest.fixture
def rows(make_rows: Callable[..., Rows]) -> Rows:
    made: Rows = make_rows((64,) * 40, SIZE)
    return made


def test_replaced_tokens_are_the_ones_that_differ(rows: Rows) -> None:
    learner = make("electra", {"replaced_token": {}}, embedding_width=8)
    batch = learner.prepare(rows, Vocabulary())  # type: ignore[arg-type]
    original = torch.from_numpy(rows.ids)
    hidden = batch.targets["replaced_token.generator.places"]
    assert (batch.ids[hidden] == Vocabulary.mask).all() and torch.equal(
        original[hidden], batch.targets["replaced_token.generator.answers"]
    )
    with torch.no_grad():
        shown, scores = learner.disguise(batch)
    assert not (shown.ids == Vocabulary.mask).any(), "the backbone never sees [MASK]"
    untouched = torch.ones(len(original), dtype=torch.bool)
    untouched[hidden] = False
    assert torch.equal(shown.ids[untouched], original[untouched])
    places = shown.targets["replaced_token.places"]
    assert torch.equal(shown.targets["replaced_token.answers"], (shown.ids != original)[places].long())
    assert 0 < shown.targets["replaced_token.answers"].sum() <= len(hidden)
    assert set(scores) == {"replaced_token.generator"} and scores["replaced_token.generator"].count == len(hidden)


def test_the_generator_draws_from_its_own_distribution() -> None:
    """The same place with many numbers: shares of tokens are the chances."""
    from keel.objectives.replaced_token import _draw

    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(1)) * 2
    numbers = torch.from_numpy(np.random.default_rng(0).random(20000).astype(np.float32))
    drawn = _draw(logits.expand(20000, -1).contiguous(), numbers)
    shares = torch.bincount(drawn, minlength=12) / 20000
    assert float((shares - logits.softmax(1)[0]).abs().max()) < 0.015


def test_the_generator_learns_nothing_from_the_discriminator(rows: Rows) -> None:
    learner = make("electra", {"replaced_token": {}}, embedding_width=8)
    batch = learner.prepare(rows, Vocabulary())  # type: ignore[arg-type]
    learner(batch)["replaced_token"].loss.backward()
    objective = learner.objectives["replaced_token"]
    assert all(p.grad is None for p in objective.generator.parameters())  # type: ignore[union-attr]
    assert learner.backbone.tokens.weight.grad is not None


def test_similar_tokens_are_the_nearest_ones(rows: Rows) -> None:
    options = {"masked_lm": {"mask": 0.0, "similar": 0.8, "random": 0.1}}
    learner = make("bert", options)
    batch = learner.prepare(rows, Vocabulary())  # type: ignore[arg-type]
    original, places = torch.from_numpy(rows.ids), batch.targets["masked_lm.similar"]
    assert 0.75 < len(places) / len(batch.targets["masked_lm.places"]) < 0.85
    assert not (batch.ids == Vocabulary.mask).any()
    shown, _ = learner.disguise(batch)
    table = F.normalize(learner.backbone.token_table().detach(), dim=1)
    for place in places.tolist():
        alike = table @ table[original[place]]
        alike[[*special_ids(Vocabulary()), int(original[place])]] = -2  # type: ignore[arg-type]
        assert int(shown.ids[place]) in alike.topk(CANDIDATES).indices.tolist()
    ranks = len({int(shown.ids[p]) for p in places.tolist()})
    assert ranks > CANDIDATES, "not always the same one"


@pytest.mark.parametrize(
    "kind, options",
    [
        ("gpt", {}),
        ("bert", {"attention": {"look": "left"}}),
        ("roberta", {"attention": {"look": "left"}, "padding": 0}),
    ],
)
def test_no_token_sees_what_comes_later(kind: str, options: dict[str, Any], rows: Rows) -> None:
    """Changing a token changes nothing before it, in training and without a gradient."""
    learner = make(kind, {"left_to_right": {}}, **options)
    one = rows.pick([0])
    for place in (20, 63):
        ids = one.ids.copy()
        ids[place] = 5 + (ids[place] - 4) % (SIZE - 5)
        for gradient in (False, True):
            with torch.set_grad_enabled(gradient):
                a, b = (learner.backbone(Batch.of(replace(one, ids=i), {})).vectors for i in (one.ids, ids))
            assert torch.equal(a[:place], b[:place]) and not torch.equal(a[place], b[place])


def test_left_to_right_asks_for_every_next_token(rows: Rows) -> None:
    learner = make("gpt", {"left_to_right": {}})
    few = rows.pick([0, 1, 2])
    batch = learner.prepare(few, Vocabulary())  # type: ignore[arg-type]
    assert len(batch.targets["left_to_right.places"]) == len(few.ids) - 3
    with torch.no_grad():
        score = learner(batch)["left_to_right"]
        vectors = learner.backbone(Batch.of(few, {})).vectors
        logits = vectors @ learner.backbone.token_table().t()
    ids, expected = torch.from_numpy(few.ids), 0.0
    for start, length in zip(few.starts.tolist(), few.lengths, strict=True):
        part = slice(start, start + length - 1)
        expected += float(F.cross_entropy(logits[part], ids[start + 1 : start + length], reduction="sum"))
    assert float(score.loss) == pytest.approx(expected, rel=1e-5)
