"""How a fresh Transformer starts: heads look at places, and what the paper's start was is a setting away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from keel.backbones.transformer import Transformer, TransformerConfig
from keel.layers.aim import around, behind, beside
from keel.tasks.translate import TranslateConfig, TranslateObjective
from keel.training.encoder import BiLstmUse, EncoderUse, Frozen

LENGTH = 60
SHAPE = {"vocabulary": 500, "layers": 2, "width": 256, "heads": 4, "feed_forward": 64, "dropout": 0.0}


def fresh(start: str = "neighbours", **changes: str) -> tuple[Transformer, TranslateObjective]:
    model = Transformer(TransformerConfig(**SHAPE, attention_start=start, **changes))
    generator = torch.Generator().manual_seed(1)
    model.start(generator)
    objective = TranslateObjective(TranslateConfig(dropout=0.0), model)
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
    for part in (*model.modules(), *objective.modules()):
        if isinstance(part, nn.Linear):
            bound = (6 / sum(part.weight.shape)) ** 0.5
            assert float(part.weight.detach().abs().max()) <= bound
            assert float(part.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.05)
        if isinstance(part, nn.Embedding):
            for column in (0, -1):
                assert float(part.weight.detach()[:, column].std()) == pytest.approx(SHAPE["width"] ** -0.5, rel=0.2)


def test_what_layers_add_starts_at_half_its_size() -> None:
    sums = [
        (model.blocks[1].feed.shrink, objective.decoder.blocks[1].across.out)  # type: ignore[union-attr]
        for model, objective in (fresh(), fresh("noise"))
    ]
    for half, whole in zip(*sums, strict=True):
        assert torch.equal(2 * half.weight, whole.weight)


@pytest.mark.parametrize("use", ["frozen", "frozen with a BiLSTM of its width", "loaded"])
def test_only_a_fresh_encoder_with_the_same_table_has_a_decoder_that_is_aimed(use: str) -> None:
    """Elsewhere tokens are not faint, or there are no waves: a head would look at nothing, or at itself."""
    model, _ = fresh()
    backbone: Any = model
    if use == "loaded":
        backbone = Transformer(model.config)
        backbone.load_state_dict(model.state_dict())
    elif use == "frozen":
        backbone = Frozen(model, EncoderUse(use="frozen"))
    else:
        backbone = Frozen(model, EncoderUse(use="frozen", bilstm=BiLstmUse(cells=128)))
    assert fresh()[1].aimed
    assert not TranslateObjective(TranslateConfig(dropout=0.0), backbone).aimed


@pytest.mark.parametrize("heads", [1, 16])
def test_heads_without_room_for_waves_start_as_published(heads: int) -> None:
    model = Transformer(TransformerConfig(**SHAPE | {"width": 16, "heads": heads}))
    model.start(torch.Generator().manual_seed(1))
    other = Transformer(model.config.model_copy(update={"attention_start": "noise"}))
    other.start(torch.Generator().manual_seed(1))
    assert not model.aimed
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_folder_from_before_loads_as_it_was() -> None:
    border = Transformer.published
    written = border.config_to(TransformerConfig(**SHAPE), 0)
    del written["attention_start"]
    assert border.config_from(written, set()) == TransformerConfig(**SHAPE, attention_start="noise")
