"""Learning only the used rows of a table gives the same vectors and the same training as learning all of it."""

from __future__ import annotations

import torch
from torch import nn

from keel.layers.compact_embedding import CompactEmbedding

USED = torch.tensor([1, 4, 5, 9])


def test_training_is_that_of_the_dense_table() -> None:
    torch.manual_seed(0)
    dense = nn.Embedding(12, 6)
    compact = CompactEmbedding(dense.weight, USED)
    before = dense.weight.detach().clone()
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1, weight_decay=0.0) for m in (dense, compact)]
    for step in range(20):
        ids = USED[torch.randint(len(USED), (7,), generator=torch.Generator().manual_seed(step))]
        for module, optimizer in zip((dense, compact), optimizers, strict=True):
            optimizer.zero_grad()
            (module(ids) ** 2).sum().backward()
            optimizer.step()
    everything = torch.arange(12)
    torch.testing.assert_close(compact.eval()(everything), dense(everything), rtol=0, atol=1e-6)
    unused = [i for i in range(12) if i not in USED.tolist()]
    assert torch.equal(compact(everything)[unused], before[unused])


def test_on_disk_the_table_is_whole() -> None:
    torch.manual_seed(0)
    one, other = (CompactEmbedding(torch.randn(12, 6), USED) for _ in range(2))
    state = one.state_dict()
    assert {name: tuple(t.shape) for name, t in state.items()} == {"weight": (12, 6)}
    other.load_state_dict(state)
    assert torch.equal(other.eval()(torch.arange(12)), one.eval()(torch.arange(12)))
    assert torch.equal(other.weight, one.weight)
    plain = nn.Embedding(12, 6)
    plain.load_state_dict(state)
    assert torch.equal(plain.weight, state["weight"])
