"""Pooling over flat rows gives what pooling each row by itself gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from keel.interfaces import Batch, Rows
from keel.layers.pooling import AttentionPooling, MeanPooling, row_of_token

LENGTHS = (5, 3, 3, 1)


@pytest.fixture
def batch() -> Batch:
    total = sum(LENGTHS)
    none = np.zeros(total, bool)
    return Batch.of(Rows(np.arange(total), LENGTHS, np.zeros(total, np.int64), none, none, np.zeros(4, np.uint64)), {})


def test_mean_and_attention(batch: Batch) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(sum(LENGTHS), 8)
    parts = vectors.split(LENGTHS)
    mean = MeanPooling()(None, vectors, batch)
    torch.testing.assert_close(mean, torch.stack([part.mean(0) for part in parts]))
    attention = AttentionPooling(8)
    weighted = [torch.softmax(attention.score(part), 0).T @ part for part in parts]
    torch.testing.assert_close(attention(None, vectors, batch), torch.cat(weighted))
    assert row_of_token(batch).tolist() == [0] * 5 + [1] * 3 + [2] * 3 + [3]
