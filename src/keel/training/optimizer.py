"""AdamW with the usual exclusions (biases and norms do not decay), and its state under the parameters' own names.

In: a learner and settings. Out: the optimizer; its state as plain tensors for `state.safetensors`, and back.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from keel.training.settings import TrainingSettings

PARTS = ("exp_avg", "exp_avg_sq", "step")


def make_optimizer(learner: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    decaying = [p for p in learner.parameters() if p.requires_grad and p.ndim >= 2]
    others = [p for p in learner.parameters() if p.requires_grad and p.ndim < 2]
    return torch.optim.AdamW(
        [
            {"params": decaying, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
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
