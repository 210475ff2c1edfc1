"""How a fresh Transformer starts: heads look at places, and what the paper's start was is a setting away."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from keel.backbones.transformer import Transformer, TransformerConfig
from keel.layers.aim import around, behind, beside
from keel.tasks.translate import TranslateConfig, TranslateObjective

LENGTH = 60
SHAPE = {"vocabulary": 500, "layers": 2, "width": 256, "heads": 4, "feed_forward": 64, "dropout": 0.0}


def fresh(start: str = "neighbours", **changes: str) -> tuple[Transformer, TranslateObjective]:
    model = Transformer(TransformerConfig(**SHAPE, attention_start=start, **changes))
    objective = TranslateObjective(TranslateConfig(dropout=0.0), model)
    generator = torch.Generator().manual_seed(1)
    model.start(generator)
    objective.begin(generator)
    return model.eval(), objective.eval()


def embedded(model: Transformer, seed: int) -> torch.Tensor:
    ids = torch.randint(5, 500, (LENGTH,), generator=torch.Generator().manual_seed(seed))
    places = torch.arange(LENGTH)
    return model.positions(model.tokens(ids) * model.width**0.5, places)[0]


def weights(query: torch.Tensor, key: torch.Tensor, heads: int) -> torch.Tensor:
    """(heads, LENGTH, LENGTH)"""
    q, k = (part.view(LENGTH, heads, -1).transpose(0, 1) for part in (query, key))
    return torch.softmax(q @ k.mT * q.shape[2] ** -0.5, 2)


def most_looked_at(looked: torch.Tensor) -> int:
    """The distance that has the largest share of all attention, of tokens that have others around them."""
    inside = torch.arange(10, LENGTH - 10)
    shares = {distance: float(looked[inside, inside + distance].mean()) for distance in range(-10, 11)}
    return max(shares, key=shares.__getitem__)


@torch.no_grad()
def test_the_encoder_looks_beside_each_token() -> None:
    model, _ = fresh()
    q, k, _ = model.blocks[0].attending.attention.qkv(embedded(model, 1)).chunk(3, 1)  # type: ignore[union-attr,operator]
    for looked, shift in zip(weights(q, k, 4), beside(4), strict=True):
        assert most_looked_at(looked) == shift


@torch.no_grad()
def test_the_decoder_looks_behind_itself() -> None:
    model, objective = fresh()
    q, k, _ = objective.decoder.blocks[0].attention.qkv(embedded(model, 2)).chunk(3, 1)
    for looked, shift in zip(weights(q, k, 4), behind(4), strict=True):
        assert most_looked_at(looked) == shift


@torch.no_grad()
def test_the_decoder_looks_at_the_same_place_of_what_was_read() -> None:
    """Through all layers: the weights of real calls, encoder and decoder."""
    model, objective = fresh()
    ids = torch.randint(5, 500, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    places = torch.arange(LENGTH)
    batch = SimpleNamespace(ids=ids[0], positions=places, lengths=(LENGTH,), asked=None)
    read = objective.decoder.read(model(batch).vectors, (LENGTH,), None)
    written = objective._embed(model, ids[1])
    for layer in objective.decoder.look(written, places, (LENGTH,), read):
        for looked, shift in zip(layer[0], around(4), strict=True):
            assert most_looked_at(looked) == shift


@pytest.mark.parametrize("changes", [{"start": "noise"}, {"position": "rotary"}, {"position": "learned"}])
def test_elsewhere_all_weights_are_glorots(changes: dict[str, str]) -> None:
    model, objective = fresh(**changes)
    for layer in (model.blocks[0].attending.attention.qkv, objective.decoder.blocks[0].across.query):  # type: ignore[union-attr]
        bound = (6 / sum(layer.weight.shape)) ** 0.5  # type: ignore[union-attr,arg-type]
        assert float(layer.weight.detach().abs().max()) <= bound  # type: ignore[union-attr,operator]
        assert float(layer.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.05)  # type: ignore[union-attr,operator]
