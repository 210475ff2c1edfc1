"""AdamW with the usual exclusions (biases and norms do not decay), or Muon for the layers' matrices and AdamW for the
rest; and the optimizer's state under the parameters' own names.

In: a learner, settings, and shares of the learning rate where parameters differ. Out: the optimizer; its state as
plain tensors for `state.safetensors`, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

import torch
from torch import Tensor, nn

from keel.layers.attention import SelfAttention
from keel.layers.cross_attention import CrossAttention
from keel.layers.transformer_decoder import TransformerDecoder
from keel.training.muon import Muon
from keel.training.settings import TrainingSettings


def make_optimizer(
    learner: nn.Module,
    settings: TrainingSettings,
    scales: Mapping[nn.Parameter, float] | None = None,
    precision: str = "fp32",
) -> torch.optim.Optimizer:
    """Groups by decay and by share of the learning rate (`scale`; the loop multiplies it in). A share of 0 freezes."""
    stacks = _stacks(learner) if settings.optimizer == "muon" else {}
    groups: dict[tuple[int, bool, float], list[nn.Parameter]] = {}
    for parameter in learner.parameters():
        scale = (scales or {}).get(parameter, 1.0) * parameter.requires_grad
        parameter.requires_grad_(scale > 0)
        if scale > 0:
            groups.setdefault((stacks.get(parameter, 0), parameter.ndim >= 2, scale), []).append(parameter)
    options = {
        key: {"params": groups[key], "weight_decay": settings.weight_decay * key[1], "scale": key[2]}
        for key in sorted(groups, reverse=True)
    }
    adam = torch.optim.AdamW(
        [group for (stacked, *_), group in options.items() if not stacked],
        lr=0.0,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )
    matrices = [group | {"stacked": stacked} for (stacked, *_), group in options.items() if stacked]
    if not matrices:
        return adam
    return Together(Muon(matrices, precision=torch.bfloat16 if precision == "bf16" else torch.float32), adam)


def _stacks(learner: nn.Module) -> dict[Tensor, int]:
    """The matrices of the layers, a translator's decoder included, with how many stand on top of each other in each."""
    stacks: dict[Tensor, int] = {}
    decoders = [part for part in learner.modules() if isinstance(part, TransformerDecoder)]
    for part in chain.from_iterable(whole.modules() for whole in (learner.backbone, *decoders)):  # type: ignore[union-attr]
        if isinstance(part, SelfAttention):
            stacks[part.qkv.weight] = max(part.roles) + 1
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


class Together(torch.optim.Optimizer):
    """Optimizers that have parameters of their own, as one: the same groups, and one state."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        for part in parts:
            part.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step()


def optimizer_tensors(optimizer: torch.optim.Optimizer, learner: nn.Module) -> dict[str, Tensor]:
    """`<part>/<parameter>` for every parameter that has been updated."""
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
