"""DeBERTa keeps the contract of backbones in all of its forms, not only in that of its defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from keel.backbones.deberta import DebertaConfig
from keel.testing.contracts import BACKBONE_CHECKS

FORMS: dict[str, dict[str, Any]] = {
    "v2-xlarge": {"convolution": 3, "convolution_activation": "gelu", "share_projections": False},
    "few buckets": {"distance_buckets": 6, "farthest": 12, "norm_distances": False},
    "no buckets": {"distance_buckets": 0, "farthest": 9, "products": ("p2c",), "share_projections": False},
    "one layer": {"layers": 1, "convolution": 5, "convolution_groups": 2, "products": ("c2p",)},
    "everything added": {"absolute_positions": True, "segments": 2, "embedding_width": 8},
    "absolute": {"absolute_positions": True, "relative_positions": False},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("check", BACKBONE_CHECKS, ids=lambda check: check.__name__)
def test_a_form_keeps_the_contract(check: Callable[..., None], form: str) -> None:
    check("deberta", **FORMS[form])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"heads": 5}, "not a multiple of heads"),
        ({"convolution": 4}, "must be odd"),
        ({"convolution_groups": 5}, "not a multiple of convolution_groups"),
        ({"distance_buckets": 1}, "at least 1"),
        ({"distance_buckets": 64, "farthest": 33}, "less than farthest - 1"),
        ({"products": ("c2p", "c2p")}, "listed twice"),
    ],
)
def test_forms_that_do_not_exist_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DebertaConfig(**{"width": 64, "heads": 4} | options)
