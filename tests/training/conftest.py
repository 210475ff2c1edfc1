"""A small run for the tests of the loop and of what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from keel import recipe as recipes
from keel.learner.build import fresh_learner
from keel.pretraining.data import open_data
from keel.training.loop import Run
from keel.training.optimizer import make_optimizer
from keel.training.state import State


@pytest.fixture
def make_run(corpus_path: Any, tiny: tuple[str, ...]) -> Callable[..., Run]:
    """A run of the tiny recipe whose hooks do nothing."""

    def make(*overrides: str, **parts: Any) -> Run:
        recipe = recipes.load("bert-tiny", [*tiny, "training.steps=8", *overrides])
        data = open_data(recipe, str(corpus_path), None)
        model = data.recipe.model
        learner = fresh_learner(model.backbone, model.objectives, data.recipe.training.seed)
        optimizer = make_optimizer(learner, recipe.training)
        run = Run(
            learner=learner,
            optimizer=optimizer,
            tokenizer=data.tokenizer,
            source=data.micro_batches,
            settings=recipe.training,
            state=State(),
            device=torch.device("cpu"),
            precision="fp32",
            evaluate=lambda parts: {},
            save=lambda state: None,
            log=lambda line: None,
            show=lambda line: None,
        )
        return replace(run, **parts)

    return make
