"""What the objectives' tests share: a small learner, a vocabulary, and rows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from keel import catalog
from keel.learner.build import assemble
from keel.learner.learner import Learner
from keel.values import Rows

SIZE = 90
SMALL = {"vocabulary": SIZE, "layers": 2, "width": 16, "heads": 2, "feed_forward": 24, "positions": 64}


@pytest.fixture(scope="session")
def vocabulary() -> Any:
    """All that objectives need of a tokenizer."""
    return SimpleNamespace(size=SIZE, pad=0, unk=1, cls=2, sep=3, mask=4, between=1)


@pytest.fixture(scope="session")
def make_learner() -> Callable[..., Learner]:
    """A backbone of this kind with these objectives and their options, without dropout."""

    def make(kind: str, objectives: dict[str, Any], **options: Any) -> Learner:
        backbone = catalog.find("backbones", kind)
        built = backbone(backbone.Config(**SMALL, dropout=0.0, attention_dropout=0.0, **options))
        built.init_weights(torch.Generator().manual_seed(0))
        torch.manual_seed(0)
        return assemble(built, objectives).eval()

    return make


@pytest.fixture
def rows(make_rows: Callable[..., Rows]) -> Rows:
    made: Rows = make_rows((64,) * 40, SIZE)
    return made
