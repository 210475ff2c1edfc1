"""AdamW with the usual exclusions (biases and norms do not decay), and its state under the parameters' own names.

In: a learner, settings, and shares of the learning rate where parameters differ. Out: the optimizer; its state as
plain tensors for `state.safetensors`, and back.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from keel.training.settings import TrainingSettings

PARTS = ("exp_avg", "exp_avg_sq", "step")


def make_optimizer(
    learner: nn.Module, settings: TrainingSettings, scales: Mapping[nn.Parameter, float] | None = None
) -> torch.optim.Optimizer:
    """Groups by decay and by share of the learning rate (`scale`; the loop multiplies it in). A share of 0 freezes."""
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in learner.parameters():
        scale = (scales or {}).get(parameter, 1.0) * parameter.requires_grad
        parameter.requires_grad_(scale > 0)
        if scale > 0:
            groups.setdefault((parameter.ndim >= 2, scale), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": groups[decays, scale], "weight_decay": settings.weight_decay * decays, "scale": scale}
            for decays, scale in sorted(groups, reverse=True)
        ],
        lr=0.0,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )


def optimizer_tensors(optimizer: torch.optim.Optimizer, learner: nn.Module) -> dict[str, Tensor]:
    """`<part>/<parameter>` for every parameter that has been updated."""
    return {
        f"{part}/{name}": optimizer.state[parameter][part].detach().cpu()
        for name, parameter in learner.named_parameters()
        if parameter in optimizer.state
        for part in PARTS
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, learner: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, parameter in learner.named_parameters():
        if f"step/{name}" in tensors:
            optimizer.state[parameter] = {part: tensors[f"{part}/{name}"].to(parameter.device) for part in PARTS}
