"""Schedules, budgets and the optimizer: published formulas, checked against torch and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from keel.training.optimizer import make_optimizer, optimizer_tensors, restore_optimizer
from keel.training.schedules import learning_rate
from keel.training.settings import UNITS, TrainingSettings, seconds


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from("smhd")), min_size=1, max_size=4), st.booleans())
def test_a_budget_is_the_sum_of_its_parts(parts: list[tuple[int, str]], spaces: bool) -> None:
    text = (" " if spaces else "").join(f"{number}{unit}" for number, unit in parts)
    total = sum(number * UNITS[unit] for number, unit in parts)
    if total:
        assert seconds(text) == total
        assert TrainingSettings(budget=text).budget == text
    else:
        with pytest.raises(ValueError):
            seconds(text)


def test_budgets_as_people_write_them() -> None:
    written = {"90s": 90, "45m": 2700, "2h": 7200, "1h30m": 5400, "1.5h": 5400, "1d": 86400}
    assert {text: seconds(text) for text in written} == written


@given(st.text(max_size=8))
def test_any_other_text_is_not_a_budget(text: str) -> None:
    import re

    if re.fullmatch(r"(\s*[0-9]+(\.[0-9]+)?[smhd]\s*)+", text):
        return
    with pytest.raises(ValueError, match="time"):
        seconds(text)


@pytest.mark.parametrize("decay", ["linear", "cosine", "constant"])
def test_the_rate_follows_the_published_formula(decay: str) -> None:
    """Linear warm-up over the first steps, then linear to zero, half a cosine to zero, or constant."""
    settings = TrainingSettings(steps=1000, warmup=100, learning_rate=0.01, decay=decay)
    for step in range(0, 1001, 7):
        if step < 100:
            expected = 0.01 * step / 100
        else:
            done = (step - 100) / 900
            expected = 0.01 * {"linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2, "constant": 1}[decay]
        assert learning_rate(settings, step / 1000) == pytest.approx(expected, abs=1e-12)


@given(st.floats(0, 0.999), st.floats(0, 1), st.sampled_from(["linear", "cosine", "constant"]))
def test_the_rate_stays_between_zero_and_its_peak(warmup: float, progress: float, decay: str) -> None:
    settings = TrainingSettings(warmup=warmup, decay=decay, learning_rate=0.5)
    assert 0 <= learning_rate(settings, progress) <= 0.5 * (1 + 1e-9)
    assert learning_rate(settings, warmup) == pytest.approx(0.5)


def test_warmup_in_steps_and_as_a_share_agree() -> None:
    share, steps = TrainingSettings(steps=200, warmup=0.1), TrainingSettings(steps=200, warmup=20)
    for step in range(201):
        assert learning_rate(share, step / 200) == pytest.approx(learning_rate(steps, step / 200))


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


def test_steps_equal_the_plain_formula() -> None:
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


def test_the_optimizers_state_travels_as_named_tensors() -> None:
    """Saved, restored into a fresh optimizer and stepped again: the same bits as without the detour."""

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
