"""Muon: steps are nearly orthogonal, equal torch's own, and each stacked matrix has its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keel.backbones.rnn import Rnn, RnnConfig
from keel.backbones.transformer import Transformer, TransformerConfig
from keel.learner.build import fresh_learner
from keel.learner.learner import Learner
from keel.optimizers.muon import Muon, orthogonal
from keel.pretraining.data import open_data
from keel.recipe import load
from keel.tasks.translate import TranslateConfig, TranslateObjective
from keel.training.optimizer import make_optimizer
from keel.training.settings import TrainingSettings


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), seed=st.integers(0, 10_000), scale=st.floats(1e-6, 1e6))
def test_a_step_keeps_singular_vectors_and_equalises_singular_values(
    rows: int, columns: int, seed: int, scale: float
) -> None:
    matrix = random(rows, columns, seed=seed) * scale
    u, s, vt = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    found = u.T @ orthogonal(matrix[None])[0].double().numpy() @ vt.T
    kept = s > 0.02 * np.linalg.norm(s)  # what is nearly nothing takes more rounds
    assert np.all((np.diag(found)[kept] > 0.6) & (np.diag(found)[kept] < 1.3))
    assert np.abs(found - np.diag(np.diag(found))).max() < 0.05


def test_steps_equal_those_of_torch() -> None:
    ours, theirs = (torch.nn.Parameter(random(24, 40)) for _ in range(2))
    mine = Muon([{"params": [ours], "lr": 0.02, "weight_decay": 0.1}], precision=torch.bfloat16)
    reference = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    before = ours.detach().clone()
    for step in range(5):
        ours.grad, theirs.grad = (random(24, 40, seed=step + 1) for _ in range(2))
        mine.step()
        reference.step()
    moved = float((theirs.detach() - before).abs().max())
    difference = float((ours - theirs).detach().abs().max())
    assert difference <= 0.05 * moved, "bf16 rounds to a hundredth, and sums in another order"


def test_stacked_matrices_have_separate_steps() -> None:
    together = torch.nn.Parameter(random(36, 12))
    alone = [torch.nn.Parameter(part.clone()) for part in together.detach().chunk(3)]
    optimizers = [Muon([{"params": [together], "lr": 0.1, "stacked": 3}]), Muon([{"params": alone, "lr": 0.1}])]
    for step in range(3):
        together.grad = random(36, 12, seed=step)
        for part, gradient in zip(alone, together.grad.chunk(3), strict=True):
            part.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.allclose(together, torch.cat(list(alone)), atol=1e-6)


@pytest.mark.parametrize("recipe", ["bert-mini", "albert-mini", "gpt-mini", "modern-mini", "tiny-shared-qk"])
def test_muon_takes_the_layers_matrices_and_adamw_the_rest(recipe: str, corpus_path: Path) -> None:
    small = ["model.backbone.layers=2", "model.backbone.width=32", "model.backbone.heads=2"]
    chosen = open_data(load(recipe, [*small, "training.optimizer=muon"]), str(corpus_path), None).recipe
    learner = fresh_learner(chosen.model.backbone, chosen.model.objectives, chosen.training.seed)
    groups = make_optimizer(learner, chosen.training).param_groups
    stacked = {id(p): group.get("stacked", 0) for group in groups for p in group["params"]}
    assert len(stacked) == sum(p.requires_grad for p in learner.parameters())
    for name, parameter in learner.named_parameters():
        inside = name.startswith("backbone.") and parameter.ndim == 2
        table = any(part in name.split(".") for part in ("tokens", "positions", "segments"))
        stack = 2 if recipe == "tiny-shared-qk" else 3
        expected = (stack if ".qkv." in name else 1) if inside and not table else 0
        assert stacked.get(id(parameter), 0) == expected, name


def test_muon_takes_a_translators_decoder_too() -> None:
    backbone = Transformer(TransformerConfig(vocabulary=50, layers=1, width=32, heads=2, feed_forward=64))
    learner = Learner(backbone, {"translate": TranslateObjective(TranslateConfig(), backbone)})
    groups = make_optimizer(learner, TrainingSettings(optimizer="muon")).param_groups
    stacked = {id(p): group.get("stacked", 0) for group in groups for p in group["params"]}
    for name, parameter in learner.named_parameters():
        copies = 3 if ".qkv." in name else 2 if ".key_value." in name else 1
        table = parameter is backbone.token_embeddings()
        assert stacked[id(parameter)] == (copies if parameter.ndim == 2 and not table else 0), name


@pytest.mark.parametrize("cell, gates", [("lstm", 4), ("gru", 3)])
def test_each_gate_of_a_recurrent_network_is_a_matrix(cell: str, gates: int) -> None:
    backbone = Rnn(RnnConfig(vocabulary=50, width=32, cell=cell))
    groups = make_optimizer(Learner(backbone, {}), TrainingSettings(optimizer="muon")).param_groups
    stacked = {id(p): group.get("stacked", 0) for group in groups for p in group["params"]}
    for name, parameter in backbone.blocks.named_parameters():
        assert stacked[id(parameter)] == (gates if "weight" in name else 0), name


def test_several_threads_give_the_same_bits_as_one() -> None:
    moved = []
    for threads in (1, 3):
        generator = torch.Generator().manual_seed(4)
        weights = [
            torch.nn.Parameter(torch.randn(n, m, generator=generator)) for n, m in ((9, 5), (4, 8), (6, 6), (3, 12))
        ]
        optimizer = Muon([{"params": weights, "lr": 0.1}])
        torch.set_num_threads(threads)
        try:
            for _ in range(2):
                for weight in weights:
                    weight.grad = torch.randn(weight.shape, generator=generator)
                optimizer.step()
        finally:
            torch.set_num_threads(1)
        moved.append(weights)
    assert all(torch.equal(one, other) for one, other in zip(*moved, strict=True))
