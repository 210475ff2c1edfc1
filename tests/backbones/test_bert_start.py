"""How a fresh BERT starts: the first layer looks at neighbours, and nothing else about the model is different."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from keel.backbones.bert import Bert, BertConfig
from keel.backbones.electra import Electra, ElectraConfig
from keel.backbones.gpt import Gpt, GptConfig
from keel.interfaces import Batch, Rows
from keel.layers.aim import LOOKING


def first_attention(config: BertConfig, ids: np.ndarray, family: type[Bert] = Bert) -> torch.Tensor:
    """(heads, length, length): the first layer's attention weights for one row, worked out from the weights alone."""
    model = family(config).eval()
    model.start(torch.Generator().manual_seed(1))
    length = len(ids)
    none = np.zeros(length, bool)
    rows = Rows(ids, (length,), np.zeros(length, np.int64), none, none, np.zeros(1, np.uint64))
    batch = Batch.of(rows, {})
    with torch.no_grad():
        x = model.embed(batch)
        attention: torch.nn.Module = model.blocks[0].attending.attention
        q, k, _ = attention.qkv(x).view(length, 3, config.heads, -1).permute(1, 2, 0, 3)
        return torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1)


@pytest.mark.parametrize(
    "width, heads, embedding",
    [(128, 2, None), (256, 4, None), (768, 12, None), (256, 4, 128), (128, 2, 64), (256, 4, 100)],
)
def test_each_head_starts_at_its_own_distance(width: int, heads: int, embedding: int | None) -> None:
    """With embeddings as wide as the layers, and smaller ones (ELECTRA's)."""
    shape = {"vocabulary": 500, "layers": 1, "width": width, "heads": heads, "feed_forward": 64}
    deviation = {"start_deviation": 0.035}
    config = (
        ElectraConfig(**shape, **deviation, embedding_width=embedding)
        if embedding
        else BertConfig(**shape, **deviation)
    )
    ids = np.random.default_rng(0).integers(5, 500, 100)
    weights = first_attention(config, ids, Electra if embedding else Bert)
    for head in range(min(heads, LOOKING)):
        shift = (head // 2 + 1) * (1 if head % 2 else -1)
        inside = torch.arange(10, 90)
        looked_at = weights[head, inside].argmax(1)
        hits = (looked_at == inside + shift).float().mean()
        assert hits > 0.7, (head, shift, hits)
        assert weights[head, inside, inside + shift].mean() > 0.5  # a uniform head would give 0.01


def test_noise_gives_the_published_start() -> None:
    config = BertConfig(
        vocabulary=500, layers=2, width=64, heads=4, feed_forward=64, position_start="noise", attention_start="noise"
    )
    model = Bert(config)
    model.start(torch.Generator().manual_seed(1))
    for weight in (model.positions.weight.data, model.blocks[0].attending.attention.qkv.weight.data):
        assert float(weight.std()) == pytest.approx(config.start_deviation, rel=0.05)
        assert abs(float(weight.mean())) < 0.002


def test_only_queries_and_keys_of_the_first_layer_differ() -> None:
    sizes = {"vocabulary": 300, "layers": 2, "width": 64, "heads": 4, "feed_forward": 64}
    states = []
    for start in ("neighbours", "noise"):
        model = Bert(BertConfig(**sizes, attention_start=start))
        model.start(torch.Generator().manual_seed(1))
        states.append(model.state_dict())
    different = [name for name in states[0] if not torch.equal(states[0][name], states[1][name])]
    assert different == ["blocks.0.attending.attention.qkv.weight"]
    (name,) = different
    assert torch.equal(states[0][name][128:], states[1][name][128:]), "values start as noise"


@pytest.mark.parametrize("kind", ["gpt", "bert"])
def test_heads_that_cannot_look_ahead_start_behind_them(kind: str) -> None:
    shape = {"vocabulary": 500, "layers": 1, "width": 256, "heads": 4, "feed_forward": 64, "start_deviation": 0.035}
    left = {"attention": {"look": "left"}}
    model: Bert | Gpt = Gpt(GptConfig(**shape)) if kind == "gpt" else Bert(BertConfig(**shape, **left))
    model.eval().start(torch.Generator().manual_seed(1))
    ids = np.random.default_rng(0).integers(5, 500, 100)
    none = np.zeros(100, bool)
    batch = Batch.of(Rows(ids, (100,), np.zeros(100, np.int64), none, none, np.zeros(1, np.uint64)), {})
    with torch.no_grad():
        if isinstance(model, Gpt):
            x = model.blocks[0].attention_norm(model.tokens(batch.ids) + model.positions(batch.positions))
            attention = model.blocks[0].attention
        else:
            x, attention = model.embed(batch), model.blocks[0].attending.attention
        q, k, _ = attention.qkv(x).view(100, 3, 4, -1).permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2) / 64**0.5
    weights = torch.softmax(scores.masked_fill(torch.ones(100, 100).triu(1).bool(), -torch.inf), -1)
    inside = torch.arange(10, 90)
    for head in range(4):
        assert (weights[head, inside].argmax(1) == inside - head - 1).float().mean() > 0.7
