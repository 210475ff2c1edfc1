"""Every backbone keeps its contract (`keel.testing.contracts`). A new file in `backbones/` is tested by existing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keel import catalog
from keel.testing.contracts import BACKBONE_CHECKS

NAMES = catalog.names("backbones")


@pytest.mark.parametrize("backbone", NAMES)
@pytest.mark.parametrize("check", BACKBONE_CHECKS, ids=lambda check: check.__name__)
def test_a_backbone_keeps_its_contract(check: Callable[[str], None], backbone: str) -> None:
    check(backbone)


def test_there_is_something_to_test() -> None:
    assert "bert" in NAMES
