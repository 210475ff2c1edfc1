"""Initial weights of BERT, ELECTRA and GPT: the first layer attends to neighbours, and nothing else differs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from keel.backbones.bert import Bert, BertConfig
from keel.backbones.electra import Electra, ElectraConfig
from keel.backbones.gpt import Gpt, GptConfig
from keel.layers.block import attention_of
from keel.layers.init_offsets import MOST_HEADS
from keel.values import Batch, Rows


def first_attention(model: Bert | Electra, ids: np.ndarray) -> torch.Tensor:
    """(heads, length, length): the first layer's attention weights for one row, from the weights alone."""
    model.eval().init_weights(torch.Generator().manual_seed(1))
    length = len(ids)
    none = np.zeros(length, bool)
    rows = Rows(ids, (length,), np.zeros(length, np.int64), none, none, np.zeros(1, np.uint64))
    batch = Batch.of(rows, {})
    with torch.no_grad():
        x = model.embeddings(batch)
        if isinstance(model, Electra) and model.embedding_projection is not None:
            x = model.embedding_projection(x)
        qkv = attention_of(model.blocks[0]).qkv(x)
        q, k, _ = qkv.view(length, 3, model.config.heads, -1).permute(1, 2, 0, 3)
        return torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1)


@pytest.mark.parametrize(
    "width, heads, embedding",
    [(128, 2, None), (256, 4, None), (768, 12, None), (256, 4, 128), (128, 2, 64), (256, 4, 100)],
)
def test_each_head_starts_at_its_own_offset(width: int, heads: int, embedding: int | None) -> None:
    """With embeddings as wide as the layers, and smaller ones (ELECTRA's)."""
    shape = {"vocabulary": 500, "layers": 1, "width": width, "heads": heads, "feed_forward": 64}
    shape |= {"init_std": 0.035}
    model: Bert | Electra = Bert(BertConfig(**shape))
    if embedding:
        model = Electra(ElectraConfig(**shape, embedding_width=embedding))
    weights = first_attention(model, np.random.default_rng(0).integers(5, 500, 100))
    for head in range(min(heads, MOST_HEADS)):
        offset = (head // 2 + 1) * (1 if head % 2 else -1)
        inside = torch.arange(10, 90)
        hits = (weights[head, inside].argmax(1) == inside + offset).float().mean()
        assert hits > 0.7, (head, offset, hits)
        assert weights[head, inside, inside + offset].mean() > 0.5  # a uniform head would give 0.01


def test_noise_gives_the_published_initialisation() -> None:
    config = BertConfig(
        vocabulary=500, layers=2, width=64, heads=4, feed_forward=64, position_init="noise", attention_init="noise"
    )
    model = Bert(config)
    model.init_weights(torch.Generator().manual_seed(1))
    for weight in (model.embeddings.positions.weight.data, attention_of(model.blocks[0]).qkv.weight.data):
        assert float(weight.std()) == pytest.approx(config.init_std, rel=0.05)
        assert abs(float(weight.mean())) < 0.002


def test_only_queries_and_keys_of_the_first_layer_differ() -> None:
    sizes = {"vocabulary": 300, "layers": 2, "width": 64, "heads": 4, "feed_forward": 64}
    states = []
    for start in ("neighbours", "noise"):
        model = Bert(BertConfig(**sizes, attention_init=start))
        model.init_weights(torch.Generator().manual_seed(1))
        states.append(model.state_dict())
    different = [name for name in states[0] if not torch.equal(states[0][name], states[1][name])]
    assert different == ["blocks.0.attention.qkv.weight"]
    (name,) = different
    assert torch.equal(states[0][name][128:], states[1][name][128:]), "values start as noise"


@pytest.mark.parametrize("kind", ["gpt", "bert"])
def test_causal_heads_start_at_previous_tokens(kind: str) -> None:
    shape = {"vocabulary": 500, "layers": 1, "width": 256, "heads": 4, "feed_forward": 64, "init_std": 0.035}
    causal = {"attention": {"causal": True}}
    model: Bert | Gpt = Gpt(GptConfig(**shape)) if kind == "gpt" else Bert(BertConfig(**shape, **causal))
    model.eval().init_weights(torch.Generator().manual_seed(1))
    ids = np.random.default_rng(0).integers(5, 500, 100)
    none = np.zeros(100, bool)
    batch = Batch.of(Rows(ids, (100,), np.zeros(100, np.int64), none, none, np.zeros(1, np.uint64)), {})
    with torch.no_grad():
        if isinstance(model, Gpt):
            x = model.blocks[0].attention_norm(model.tokens(batch.ids) + model.positions(batch.positions))
        else:
            x = model.embeddings(batch)
        q, k, _ = attention_of(model.blocks[0]).qkv(x).view(100, 3, 4, -1).permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2) / 64**0.5
    weights = torch.softmax(scores.masked_fill(torch.ones(100, 100).triu(1).bool(), -torch.inf), -1)
    inside = torch.arange(10, 90)
    for head in range(4):
        assert (weights[head, inside].argmax(1) == inside - head - 1).float().mean() > 0.7
