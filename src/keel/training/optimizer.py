"""The optimizer of a run: one from `optimizers/` for the layers' matrices or for everything, AdamW for the rest,
without weight decay for biases and norms. Also saves and restores the optimizer state by parameter name.

In: a learner, settings, and learning-rate multipliers of some parameters. Out: the optimizer; its state as plain
tensors for `state.safetensors`, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from keel import catalog
from keel.layers.attention.cross_attention import CrossAttention
from keel.layers.attention.disentangled import DisentangledAttention
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.decoders.transformer import TransformerDecoder
from keel.learner.learner import Learner
from keel.training.settings import TrainingSettings


def make_optimizer(
    learner: Learner,
    settings: TrainingSettings,
    scales: Mapping[nn.Parameter, float] | None = None,
    precision: str = "fp32",
) -> torch.optim.Optimizer:
    """Groups parameters by weight decay and learning-rate multiplier (`scale`, applied by the loop; 0 freezes)."""
    kind, rest = catalog.find("optimizers", settings.optimizer), catalog.find("optimizers", "adamw")
    stacks = _stacks(learner) if kind.matrices_only else {}
    groups: dict[tuple[int, bool, float], list[nn.Parameter]] = {}
    for parameter in learner.parameters():
        scale = (scales or {}).get(parameter, 1.0) * parameter.requires_grad
        parameter.requires_grad_(scale > 0)
        if scale > 0:
            groups.setdefault((stacks.get(parameter, 0), parameter.ndim >= 2, scale), []).append(parameter)
    options: dict[tuple[int, bool, float], dict[str, Any]] = {
        key: {"params": groups[key], "weight_decay": settings.weight_decay * key[1], "scale": key[2]}
        for key in sorted(groups, reverse=True)
    }
    shared = {"betas": (settings.beta1, settings.beta2), "epsilon": settings.epsilon, "precision": precision}
    others = [group for (stacked, *_), group in options.items() if not stacked]
    matrices = [group | {"stacked": stacked} for (stacked, *_), group in options.items() if stacked]
    if not matrices:
        made: torch.optim.Optimizer = (rest if kind.matrices_only else kind).make(others, **shared)
        return made
    return Together(kind.make(matrices, **shared), rest.make(others, **shared))


def _stacks(learner: Learner) -> dict[Tensor, int]:
    """The weight matrices of the layers, including a translator's decoder, and how many are stacked in each."""
    stacks: dict[Tensor, int] = {}
    for part in _layers(learner):
        if isinstance(part, SelfAttention):
            stacks[part.qkv.weight] = max(part.roles) + 1
        elif isinstance(part, DisentangledAttention):
            stacks[part.qkv.weight] = 3
        elif isinstance(part, CrossAttention):
            stacks[part.key_value.weight] = 2
        elif isinstance(part, nn.Linear):
            stacks.setdefault(part.weight, 1)
        elif isinstance(part, nn.LSTM | nn.GRU):
            gates = 4 if isinstance(part, nn.LSTM) else 3
            for name, weight in part.named_parameters():
                if weight.ndim == 2:
                    stacks[weight] = 1 if name.startswith("weight_hr") else gates
    return stacks


def _layers(learner: Learner) -> Iterator[nn.Module]:
    yield from learner.backbone.modules()
    for part in learner.modules():
        if isinstance(part, TransformerDecoder):
            yield from part.modules()


class Together(torch.optim.Optimizer):
    """Several optimizers of disjoint parameters as one, with all of their groups and one state."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        for part in parts:
            part.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # returns no loss
        for part in self.parts:
            part.step()


def optimizer_tensors(optimizer: torch.optim.Optimizer, learner: nn.Module) -> dict[str, Tensor]:
    """Tensors named `<part>/<parameter>`, for every parameter that has been updated."""
    return {
        f"{part}/{name}": tensor.detach().cpu()
        for name, parameter in learner.named_parameters()
        if parameter in optimizer.state
        for part, tensor in optimizer.state[parameter].items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, learner: nn.Module, tensors: dict[str, Tensor]) -> None:
    parameters = dict(learner.named_parameters())
    for key, tensor in tensors.items():
        part, name = key.split("/", 1)
        optimizer.state[parameters[name]][part] = tensor.to(parameters[name].device)
