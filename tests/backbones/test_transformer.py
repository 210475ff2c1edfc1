"""Initial weights of the Transformer: heads attend at fixed offsets, and the published initialisation is an option."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from keel.backbones.transformer import Transformer, TransformerConfig
from keel.interfaces import Backbone, CachedEncoder
from keel.layers.block import attention_of
from keel.layers.init_offsets import centred_offsets, neighbour_offsets, previous_offsets
from keel.learner.frozen_encoder import BiLstmSettings, EncoderSettings, FrozenEncoder
from keel.tasks.translate import TranslateConfig, TranslateObjective

LENGTH = 60
SHAPE = {"vocabulary": 500, "layers": 2, "width": 256, "heads": 4, "feed_forward": 64, "dropout": 0.0}


def fresh(init: str = "neighbours", **changes: str) -> tuple[Transformer, TranslateObjective]:
    model = Transformer(TransformerConfig(**SHAPE, attention_init=init, **changes))
    generator = torch.Generator().manual_seed(1)
    model.init_weights(generator)
    objective = TranslateObjective(TranslateConfig(dropout=0.0), model)
    objective.init_weights(generator)
    return model.eval(), objective.eval()


def embedded(model: Transformer, seed: int) -> torch.Tensor:
    ids = torch.randint(5, 500, (LENGTH,), generator=torch.Generator().manual_seed(seed))
    places = torch.arange(LENGTH)
    return model.positions(model.tokens(ids) * model.width**0.5, places)[0]


def weights(query: torch.Tensor, key: torch.Tensor, heads: int) -> torch.Tensor:
    """(heads, LENGTH, LENGTH)"""
    q, k = (part.view(LENGTH, heads, -1).transpose(0, 1) for part in (query, key))
    return torch.softmax(q @ k.mT * q.shape[2] ** -0.5, 2)


def main_offset(attended: torch.Tensor) -> int:
    """The offset with the largest share of all attention, of tokens that are not near an edge."""
    inside = torch.arange(10, LENGTH - 10)
    shares = {offset: float(attended[inside, inside + offset].mean()) for offset in range(-10, 11)}
    return max(shares, key=shares.__getitem__)


@torch.no_grad()
def test_the_encoder_attends_to_neighbours() -> None:
    model, _ = fresh()
    q, k, _ = attention_of(model.blocks[0]).qkv(embedded(model, 1)).chunk(3, 1)
    for attended, offset in zip(weights(q, k, 4), neighbour_offsets(4), strict=True):
        assert main_offset(attended) == offset


@torch.no_grad()
def test_the_decoder_attends_to_previous_tokens() -> None:
    model, objective = fresh()
    q, k, _ = objective.decoder.blocks[0].attention.qkv(embedded(model, 2)).chunk(3, 1)
    for attended, offset in zip(weights(q, k, 4), previous_offsets(4), strict=True):
        assert main_offset(attended) == offset


@torch.no_grad()
def test_the_decoder_attends_to_the_same_position_of_the_source() -> None:
    """In all layers: the weights of real calls of encoder and decoder."""
    model, objective = fresh()
    ids = torch.randint(5, 500, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    places = torch.arange(LENGTH)
    batch = SimpleNamespace(ids=ids[0], positions=places, lengths=(LENGTH,), selected=None, inspection=None)
    read = objective.decoder.read(model(batch).vectors, (LENGTH,), None)
    written = objective.embed(CachedEncoder(model), ids[1])
    for layer in objective.decoder.attention_weights(written, places, (LENGTH,), read):
        for attended, offset in zip(layer[0], centred_offsets(4), strict=True):
            assert main_offset(attended) == offset


@pytest.mark.parametrize("changes", [{"init": "noise"}, {"position": "rotary"}, {"position": "learned"}])
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


def test_residual_layers_start_at_half_their_size() -> None:
    sums = [
        (model.blocks[1].feed_forward.down, objective.decoder.blocks[1].cross_attention.out)  # type: ignore[union-attr]
        for model, objective in (fresh(), fresh("noise"))
    ]
    for half, whole in zip(*sums, strict=True):
        assert torch.equal(2 * half.weight, whole.weight)


@pytest.mark.parametrize("use", ["frozen", "frozen with a BiLSTM of its width", "loaded"])
def test_only_a_fresh_encoder_with_the_same_table_has_a_decoder_with_fixed_offsets(use: str) -> None:
    """Elsewhere embeddings hide the waves, or there are none: heads would attend to nothing, or to themselves."""
    model, _ = fresh()
    backbone: Backbone = model
    if use == "loaded":
        backbone = Transformer(model.config)
        backbone.load_state_dict(model.state_dict())
    elif use == "frozen":
        backbone = FrozenEncoder(model, EncoderSettings(frozen=True))
    else:
        backbone = FrozenEncoder(model, EncoderSettings(frozen=True, bilstm=BiLstmSettings(cells=128)))
    assert fresh()[1].fixed_offsets
    assert not TranslateObjective(TranslateConfig(dropout=0.0), backbone).fixed_offsets


@pytest.mark.parametrize("heads", [1, 16])
def test_heads_without_room_for_waves_have_the_published_initialisation(heads: int) -> None:
    model = Transformer(TransformerConfig(**SHAPE | {"width": 16, "heads": heads}))
    model.init_weights(torch.Generator().manual_seed(1))
    other = Transformer(model.config.model_copy(update={"attention_init": "noise"}))
    other.init_weights(torch.Generator().manual_seed(1))
    assert not model.offsets_initialised
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
