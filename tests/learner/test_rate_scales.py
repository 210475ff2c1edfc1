"""Layer-wise rate decay and freezing: which parameters move, and by which factor of the learning rate."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from keel.backbones.bert import Bert, BertConfig
from keel.errors import UserError
from keel.learner.frozen_encoder import EncoderSettings, rate_scales
from keel.learner.learner import Learner
from keel.training.optimizer import make_optimizer
from keel.training.settings import TrainingSettings


def bert(layers: int, **options: object) -> Bert:
    config = {"vocabulary": 30, "layers": layers, "width": 8, "heads": 2, "feed_forward": 12, "positions": 16}
    made = Bert(BertConfig(**(config | options)))  # type: ignore[arg-type]
    made.init_weights(torch.Generator().manual_seed(0))
    return made


def depth(name: str, layers: int) -> int:
    """How many layers lie above: 0 for the pooler, 1 for the top layer, one more than layers for the embeddings."""
    if name.startswith("pooler"):
        return 0
    return layers - int(name.split(".")[1]) if name.startswith("blocks.") else layers + 1


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.floats(0.3, 1.0), st.data())
def test_a_layers_rate_is_a_power_of_the_decay(layers: int, decay: float, data: st.DataObject) -> None:
    """Howard and Ruder 2018: each layer has the rate of the layer above it, times the decay."""
    freeze = data.draw(st.integers(0, layers))
    backbone = bert(layers)
    scales = rate_scales(backbone, EncoderSettings(layer_decay=decay, freeze_layers=freeze))
    for name, parameter in backbone.named_parameters():
        frozen = freeze and (depth(name, layers) > layers - freeze)
        assert scales[parameter] == pytest.approx(0.0 if frozen else decay ** depth(name, layers)), name


@pytest.mark.parametrize("freeze", [0, 1, 2])
def test_parameters_move_by_their_factor(freeze: int) -> None:
    """Adam's first step is the learning rate whatever the gradient: what moves, moves by rate x factor."""
    layers, decay, rate = 2, 0.5, 0.01
    learner = Learner(bert(layers), {})
    scales = rate_scales(learner.backbone, EncoderSettings(layer_decay=decay, freeze_layers=freeze))
    optimizer = make_optimizer(learner, TrainingSettings(weight_decay=0.0, epsilon=1e-12), scales)
    before = {name: parameter.detach().clone() for name, parameter in learner.backbone.named_parameters()}
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]  # as the loop does it
    for parameter in learner.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    for name, parameter in learner.backbone.named_parameters():
        moved = (before[name] - parameter.detach()).abs()
        frozen = freeze and depth(name, layers) > layers - freeze
        expected = 0.0 if frozen else rate * decay ** depth(name, layers)
        assert torch.allclose(moved, torch.full_like(moved, expected), atol=1e-6), name


def test_more_layers_than_there_are_cannot_be_frozen() -> None:
    with pytest.raises(UserError, match=r"freeze_layers is 3, but the model has 2 layers"):
        rate_scales(bert(2), EncoderSettings(freeze_layers=3))


@pytest.mark.parametrize("learn", [True, False])
def test_positions_that_do_not_learn_keep_their_values(learn: bool) -> None:
    learner = Learner(bert(1, learn_positions=learn), {})
    optimizer = make_optimizer(learner, TrainingSettings(weight_decay=0.1))
    tables = [module for name, module in learner.named_modules() if name.endswith("positions")]
    (table,) = (module for module in tables if isinstance(module, nn.Embedding))
    before = table.weight.detach().clone()
    for parameter in learner.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    assert torch.equal(table.weight, before) is not learn
