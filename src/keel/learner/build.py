"""Builds learners: for pretraining with fresh weights, and for a task on top of a trained encoder.

In: configs and a seed. Out: a learner; all weights that are not given are a function of the seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from keel import catalog
from keel.configs import ObjectiveConfig
from keel.interfaces import Backbone, Objective
from keel.layers.init_weights import init_normal
from keel.learner.frozen_encoder import EncoderSettings, reinit_layers
from keel.learner.learner import Learner
from keel.learner.task_setup import TaskSetup
from keel.randomness import Draw, seed_of


def assemble(backbone: Backbone, options: Mapping[str, Any]) -> Learner:
    """A learner from a backbone and the options (or Config values) of its objectives."""
    objectives: dict[str, Objective] = {}
    for name, value in options.items():
        kind = catalog.find("objectives", name)
        config = value if isinstance(value, ObjectiveConfig) else kind.Config.model_validate(value)
        objectives[name] = kind(config, backbone)
    return Learner(backbone, objectives)


def make_backbone(config: Any) -> Backbone:
    backbone: Backbone = catalog.find("backbones", config.kind)(config)
    return backbone


def fresh_learner(config: Any, options: Mapping[str, Any], seed: int) -> Learner:
    """For pretraining: a backbone and its objectives with fresh weights."""
    learner = assemble(make_backbone(config), options)
    generator = torch.Generator().manual_seed(seed_of(seed, Draw.FRESH_WEIGHTS))
    learner.backbone.init_weights(generator)
    _init_heads(learner.objectives.values(), config.init_std, generator)
    return learner


def task_learner(setup: TaskSetup, trained: Backbone, seed: int) -> Learner:
    """For fine-tuning: a trained encoder with a fresh head."""
    generator = torch.Generator().manual_seed(seed_of(seed, Draw.TASK_HEAD))
    backbone = _adapted(setup, trained, generator)
    if setup.encoder.reinit_layers:
        reinit_layers(backbone, setup.encoder, generator)
    learner = setup.make_learner(backbone)
    if learner.frozen is not None:
        learner.frozen.init_weights(generator)
    _init_heads(learner.objectives.values(), backbone.config.init_std, generator)
    return learner


def _adapted(setup: TaskSetup, trained: Backbone, generator: torch.Generator) -> Backbone:
    """The trained backbone with the pooler and the dropout that the task needs."""
    known = type(trained.config).model_fields
    uses_cls = setup.task.config.model_dump().get("pooling") == "cls"
    pooled = uses_cls and not setup.encoder.frozen and known["pooler"].annotation is bool
    changes = {"pooler": pooled, **_dropout(setup.encoder)}
    update = {name: value for name, value in changes.items() if name in known and value is not None}
    backbone = type(trained)(trained.config.model_copy(update=update))
    if backbone.pooler is not None:
        init_normal(backbone.pooler, backbone.config.init_std, generator)  # overwritten if the trained one has it
    current = backbone.state_dict()
    shared = {name: tensor for name, tensor in trained.state_dict().items() if name in current}
    backbone.load_state_dict({**current, **shared})
    return backbone


def _dropout(settings: EncoderSettings) -> dict[str, float | None]:
    attention = settings.dropout if settings.attention_dropout is None else settings.attention_dropout
    return {"dropout": settings.dropout, "attention_dropout": attention}


def _init_heads(objectives: Iterable[Objective], std: float, generator: torch.Generator) -> None:
    for objective in objectives:
        init_normal(objective, std, generator)
        objective.init_weights(generator)
