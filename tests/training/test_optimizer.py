"""The optimizer of a run: AdamW's formula, what decays, and its state as named tensors."""

from __future__ import annotations

import torch
from torch import nn

from keel.training.optimizer import make_optimizer, optimizer_tensors, restore_optimizer
from keel.training.settings import TrainingSettings


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(11, 6)
        self.dense = nn.Linear(6, 5)
        self.norm = nn.LayerNorm(5)
        self.bias = nn.Parameter(torch.randn(5))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return (self.norm(self.dense(self.table(ids))) + self.bias).pow(2).sum()


SETTINGS = TrainingSettings(weight_decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-6)


def test_biases_and_norms_do_not_decay() -> None:
    net = Net()
    groups = {
        id(p): group["weight_decay"] for group in make_optimizer(net, SETTINGS).param_groups for p in group["params"]
    }
    found = {name: groups[id(parameter)] for name, parameter in net.named_parameters()}
    assert found == {
        "table.weight": 0.1,
        "dense.weight": 0.1,
        "dense.bias": 0.0,
        "norm.weight": 0.0,
        "norm.bias": 0.0,
        "bias": 0.0,
    }


def test_steps_equal_the_published_formula() -> None:
    """Against AdamW (Loshchilov & Hutter 2019) written out, and torch's own unfused one, over five steps."""
    net, twin = Net(), Net()
    optimizer = make_optimizer(net, SETTINGS)
    reference = torch.optim.AdamW(
        [
            {"params": [twin.table.weight, twin.dense.weight], "weight_decay": 0.1},
            {"params": [twin.dense.bias, twin.norm.weight, twin.norm.bias, twin.bias], "weight_decay": 0.0},
        ],
        lr=0.01,
        betas=(0.8, 0.95),
        eps=1e-6,
        fused=False,
        foreach=False,
    )
    by_hand = {
        n: (p.detach().double().clone(), torch.zeros_like(p, dtype=torch.double)) for n, p in Net().named_parameters()
    }
    squares = {name: torch.zeros_like(weight) for name, (weight, _) in by_hand.items()}
    for step in range(1, 6):
        ids = torch.arange(step, step + 5)
        for module, stepper in ((net, optimizer), (twin, reference)):
            stepper.zero_grad()
            module(ids).backward()
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        gradients = {name: p.grad.double() for name, p in net.named_parameters() if p.grad is not None}
        optimizer.step()
        reference.step()
        for name, (weight, mean) in by_hand.items():
            decayed = weight * (1 - 0.01 * (0.1 if name in ("table.weight", "dense.weight") else 0.0))
            mean = 0.8 * mean + 0.2 * gradients[name]
            squares[name] = 0.95 * squares[name] + 0.05 * gradients[name] ** 2
            size = (squares[name] / (1 - 0.95**step)).sqrt() + 1e-6
            by_hand[name] = (decayed - 0.01 * mean / (1 - 0.8**step) / size, mean)
    twins = dict(twin.named_parameters())
    for name, parameter in net.named_parameters():
        assert float((parameter - twins[name]).detach().abs().max()) <= 1e-6
        assert float((parameter.detach().double() - by_hand[name][0]).abs().max()) <= 1e-5


def test_the_state_is_saved_and_restored_as_named_tensors() -> None:
    """Saved, restored into a fresh optimizer and stepped again: the same bits as without."""

    def step(net: Net, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        net(torch.arange(4)).backward()
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        optimizer.step()

    net = Net()
    optimizer = make_optimizer(net, SETTINGS)
    step(net, optimizer)
    tensors = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, net).items()}
    assert set(tensors) == {
        f"{part}/{name}" for part in ("exp_avg", "exp_avg_sq", "step") for name, _ in net.named_parameters()
    }
    other = Net()
    other.load_state_dict(net.state_dict())
    fresh = make_optimizer(other, SETTINGS)
    restore_optimizer(fresh, other, tensors)
    step(net, optimizer)
    step(other, fresh)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))
