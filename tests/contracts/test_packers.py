"""Every packer keeps its contract, on made-up documents and on a corpus. See also `tests/packers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from keel import catalog
from keel.errors import UserError
from keel.testing.contracts import PACKER_CHECKS, check_packer
from keel.testing.packer_checks import some_documents


@pytest.mark.parametrize("packer", catalog.names("packers"))
@pytest.mark.parametrize("check", PACKER_CHECKS, ids=lambda check: check.__name__)
def test_a_packer_keeps_its_contract(check: Callable[[str, Any], None], packer: str, corpus: Any) -> None:
    check(packer, some_documents())
    check(packer, corpus)


def test_a_packer_that_is_not_there_is_one_line() -> None:
    with pytest.raises(UserError, match="no packer called 'nothing'"):
        check_packer("nothing")
