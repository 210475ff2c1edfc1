"""A frozen encoder is asked once about a row; what is kept changes no vector, and it is bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from keel.interfaces import Batch, Encoding, Rows
from keel.training.kept_layers import KeptLayers

LENGTHS = (9, 7, 7, 3)


class Encoder:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, batch: Batch) -> Encoding:
        self.asked += 1
        layers = tuple((batch.ids * 3 + batch.segments + n)[:, None].float().expand(-1, 4) for n in range(3))
        return Encoding(layers[-1], layers)


def test_rows_are_asked_once_in_whatever_company(make_rows: Callable[..., Rows]) -> None:
    rows, encoder, kept = make_rows(LENGTHS, 15), Encoder(), KeptLayers(limit=1 << 20)
    kept(Batch.of(rows, {}), encoder)
    for chosen in ([0, 1, 2, 3], [1, 3], [2], [0, 2]):
        batch = Batch.of(rows.pick(chosen), {})
        found, expected = kept(batch, encoder), Encoder()(batch)
        assert torch.equal(found.vectors, expected.vectors)
        assert all(torch.equal(a, b) for a, b in zip(found.layers, expected.layers, strict=True))
    assert encoder.asked == 1


@pytest.mark.parametrize("limit", [0, 200, 1000])
def test_beyond_the_limit_nothing_is_kept(make_rows: Callable[..., Rows], limit: int) -> None:
    """All rows together take 26 x 3 x 4 x 4 = 1,248 bytes."""
    batch, encoder, kept = Batch.of(make_rows(LENGTHS, 15), {}), Encoder(), KeptLayers(limit=limit)
    for _ in range(3):
        assert torch.equal(kept(batch, encoder).vectors, Encoder()(batch).vectors)
    assert encoder.asked >= 3 and not kept.rows


def test_half_precision_is_the_same_the_first_time_and_later(make_rows: Callable[..., Rows]) -> None:
    batch, kept = Batch.of(make_rows(LENGTHS, 15), {}), KeptLayers(limit=1 << 20)

    def ask(given: Batch) -> Encoding:
        vectors = torch.linspace(0, 1, len(given.ids))[:, None]
        return Encoding(vectors)

    with torch.autocast("cpu", torch.bfloat16):
        first = kept(batch, ask).vectors
    later = kept(batch, ask).vectors
    assert torch.equal(first, later) and torch.equal(first, first.bfloat16().float())
