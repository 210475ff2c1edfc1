"""Causal language modelling: no token sees what comes later, and every next token is predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from keel.learner.learner import Learner
from keel.values import Batch, Rows

SIZE = 90


@pytest.mark.parametrize(
    "kind, options",
    [
        ("gpt", {}),
        ("bert", {"attention": {"causal": True}}),
        ("roberta", {"attention": {"causal": True}, "padding": 0}),
    ],
)
def test_no_token_sees_what_comes_later(
    make_learner: Callable[..., Learner], kind: str, options: dict[str, Any], rows: Rows
) -> None:
    """Changing a token changes nothing before it, in training and without a gradient."""
    learner = make_learner(kind, {"causal_lm": {}}, **options)
    one = rows.pick([0])
    for place in (20, 63):
        ids = one.ids.copy()
        ids[place] = 5 + (ids[place] - 4) % (SIZE - 5)
        for gradient in (False, True):
            with torch.set_grad_enabled(gradient):
                a, b = (learner.backbone(Batch.of(replace(one, ids=i), {})).vectors for i in (one.ids, ids))
            assert torch.equal(a[:place], b[:place]) and not torch.equal(a[place], b[place])


def test_every_next_token_is_predicted(make_learner: Callable[..., Learner], vocabulary: Any, rows: Rows) -> None:
    learner = make_learner("gpt", {"causal_lm": {}})
    few = rows.pick([0, 1, 2])
    batch = learner.prepare(few, vocabulary)
    assert len(batch.targets["causal_lm.places"]) == len(few.ids) - 3
    with torch.no_grad():
        score = learner(batch)["causal_lm"]
        vectors = learner.backbone(Batch.of(few, {})).vectors
        logits = vectors @ learner.backbone.token_embeddings().t()
    ids, expected = torch.from_numpy(few.ids), 0.0
    for start, length in zip(few.starts.tolist(), few.lengths, strict=True):
        part = slice(start, start + length - 1)
        expected += float(F.cross_entropy(logits[part], ids[start + 1 : start + length], reduction="sum"))
    assert float(score.loss) == pytest.approx(expected, rel=1e-5)
