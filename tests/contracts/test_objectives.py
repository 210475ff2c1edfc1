"""Every objective keeps its contract with every backbone it fits, alone and beside all others that fit."""

from __future__ import annotations

import pytest
import torch

from keel import catalog
from keel.errors import UserError
from keel.learner.build import assemble, make_backbone
from keel.testing.contracts import OBJECTIVE_CHECKS
from keel.testing.objective_checks import Check
from keel.testing.small import fitting, prepared, small_config, small_learner

BACKBONES, NAMES = catalog.names("backbones"), catalog.names("objectives")
PAIRS = [(b, [o]) for b in BACKBONES for o in fitting(b)] + [(b, fitting(b)) for b in BACKBONES if len(fitting(b)) > 1]
pairs = pytest.mark.parametrize(
    ("backbone", "objectives"), PAIRS, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)


@pairs
@pytest.mark.parametrize("check", OBJECTIVE_CHECKS, ids=lambda check: check.__name__)
def test_objectives_keep_their_contract(check: Check, backbone: str, objectives: list[str]) -> None:
    check(backbone, {name: {} for name in objectives})


@pairs
def test_losses_are_positive(backbone: str, objectives: list[str]) -> None:
    """Those that are built in are all cross-entropies; other objectives may have losses below 0."""
    learner = small_learner(backbone, {name: {} for name in objectives})
    with torch.no_grad():
        assert all(float(score.loss) > 0 for score in learner(prepared(learner)).values())


@pytest.mark.parametrize("backbone", BACKBONES)
def test_an_objective_that_does_not_fit_says_so(backbone: str) -> None:
    """In a line that names an objective: what this one needs, or which other one to take."""
    for name in set(NAMES) - set(fitting(backbone)):
        with pytest.raises(UserError, match="|".join(NAMES)):
            assemble(make_backbone(small_config(backbone)), {name: {}})


def test_there_is_something_to_test() -> None:
    assert {"masked_lm", "next_sentence"} <= set(NAMES)
    assert {name for _, objectives in PAIRS for name in objectives} == set(NAMES), "an objective that fits no backbone"
