"""Runs training steps of every backbone with every objective and task on a fake device. Prints JSON.

Shapes and devices are real, values are not (fake tensors), so a tensor created on the CPU by mistake, or a hidden
synchronisation with the device (`.item()`, `bool(tensor)`), is an error that this program reports:
{"bert masked_lm": "ok", ...}. Only `predict` may synchronise: some tasks run a search.

    python -m keel.testing.fake_device [--plugin FILE ...] [--only NAME ...]

Notable choices
- The device is torch's PrivateUse1 under a name of our own, not cuda: a torch built without CUDA cannot even index a
  fake cuda tensor, nor record it for the backward pass.
- `torch.tensor(data, device=...)` bypasses fake tensors and needs the real device, so it is replaced by the two calls
  it is equivalent to; attention uses its plain formula, because this device has no fused kernels.
- A separate program, because registering a device changes the entire process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from keel import catalog
from keel.errors import UserError
from keel.interfaces import Objective, SelfUpdatingObjective
from keel.learner.build import assemble, make_backbone
from keel.learner.frozen_encoder import EncoderSettings
from keel.learner.learner import Learner, answer_counts
from keel.learner.task_setup import TaskSetup
from keel.learner.windows import to_rows
from keel.testing.small import TOKENIZER, fitting, rows_for, small_config, small_examples, small_task
from keel.testing.task_variants import variants_of
from keel.training import loop
from keel.training.settings import TrainingSettings
from keel.training.state import State
from keel.values import Rows

KIND = "fakegpu"
DEVICE = torch.device("cpu")  # set once the device is registered
MISTAKES = "mistakes"  # the name of the trials that must fail
SYNCHRONISES = (DataDependentOutputException, DynamicOutputShapeException)

Trial = Callable[[], None]


def on_device(mode: FakeTensorMode, learner: Learner) -> Learner:
    """Replaces tensors on the meta device by fake ones; shared tensors stay shared."""
    fakes: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        made = torch.empty(tensor.shape, dtype=tensor.dtype, device=DEVICE)
        return torch.nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else made

    with mode:
        for module in learner.modules():
            held: list[dict[str, Any]] = [module._parameters, module._buffers]
            for tensors in held:
                for name, tensor in tensors.items():
                    if tensor is not None:
                        tensors[name] = fakes.setdefault(id(tensor), fake(tensor))
    return learner


def objectives_trial(mode: FakeTensorMode, backbone: str, objectives: Sequence[str]) -> None:
    learner = _learner(mode, backbone, objectives)
    step(mode, learner, rows_for(learner.backbone))


def task_trial(mode: FakeTensorMode, backbone: str, name: str, options: dict[str, Any]) -> None:
    with torch.device("meta"):
        encoder = make_backbone(small_config(backbone))
        task = small_task(name, options, encoder.max_length)
        try:
            learner = TaskSetup(task, EncoderSettings()).make_learner(encoder)
        except UserError:
            return  # the task does not accept this backbone
    windows, _ = task.windows(small_examples(task), TOKENIZER)
    step(mode, on_device(mode, learner), to_rows(windows))


def loop_trial(mode: FakeTensorMode, backbone: str, objectives: Sequence[str]) -> None:
    """A step of the training loop: it may synchronise only for its metrics, after the last micro-batch's backward."""
    learner = _learner(mode, backbone, objectives)
    rows = rows_for(learner.backbone)
    parts, nothing = [rows.pick([0, 1]), rows.pick([2, 3, 4])], lambda *_: None
    with mode, sdpa_kernel(SDPBackend.MATH):
        run = loop.Run(
            learner=learner,
            optimizer=torch.optim.SGD(learner.parameters(), lr=0.1),
            tokenizer=TOKENIZER,
            source=lambda progress, cursors: (parts, cursors),
            settings=TrainingSettings(parallel_micro_batches=2),  # has an effect only on a CPU
            state=State(),
            device=DEVICE,
            precision="fp32",
            evaluate=lambda parts: {},
            save=nothing,
            log=nothing,
            show=nothing,
        )
        done: list[int] = []
        learner.register_forward_hook(lambda *_: done.append(1))
        with contextlib.suppress(*SYNCHRONISES):  # for the metrics
            loop._gradients(run, State(), 0.0)
        assert len(done) == len(parts), f"synchronises after micro-batch {len(done)} of {len(parts)}"
        idle = [key for key, p in learner.named_parameters() if p.requires_grad and p.grad is None]
        assert not idle, f"synchronises before the backward pass is done: no gradient for {idle[0]}"


def _learner(mode: FakeTensorMode, backbone: str, objectives: Sequence[str]) -> Learner:
    with torch.device("meta"):
        return on_device(mode, assemble(make_backbone(small_config(backbone)), {name: {} for name in objectives}))


def step(mode: FakeTensorMode, learner: Learner, rows: Rows) -> None:
    """Forward, backward and predictions, all on the device."""
    with mode, sdpa_kernel(SDPBackend.MATH):
        batch = learner.train().prepare(rows, TOKENIZER, DEVICE)
        scores = learner(batch)
        for name, score in scores.items():
            assert score.loss.device.type == KIND, f"{name}: the loss is on {score.loss.device}"
            right = score.correct
            assert right is None or right.device.type == KIND, f"{name}: `correct` is on {right.device}"
        loss = loop.weighted_sum(scores, answer_counts(batch))
        if loss.requires_grad or not learner.updates_itself:
            loss.backward()
            gradients = [p.grad for p in learner.parameters() if p.grad is not None]
            assert gradients and all(g.device.type == KIND for g in gradients), "gradients are on another device"
        encoder = learner.encoder()
        batch, _ = learner.corrupt(encoder, batch)
        for name, objective in learner.objectives.items():
            try:
                predictions = objective.predict(encoder, batch)
            except SYNCHRONISES:
                continue  # it runs a search
            assert predictions.device.type == KIND, f"{name}: predictions are on {predictions.device}"


def outcome(trial: Trial) -> str:
    try:
        trial()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "ok"


def mistakes(mode: FakeTensorMode) -> Iterator[tuple[str, Trial]]:
    """Deliberate mistakes that this program must detect: none may be 'ok'."""
    wrong: dict[str, Callable[[torch.Tensor], Any]] = {
        "item": lambda x: x.sum().item(),
        "bool": lambda x: bool(x.sum() > 0),
        "cpu tensor": lambda x: x + torch.arange(3),
        "cpu product": lambda x: x @ torch.ones(3, 3),
    }

    def run(body: Callable[[torch.Tensor], Any]) -> None:
        with mode:
            body(torch.ones(3, 3, device=DEVICE))

    for name, body in wrong.items():
        yield f"{MISTAKES} {name}", partial(run, body)


def trials(mode: FakeTensorMode, only: Sequence[str]) -> Iterator[tuple[str, Trial]]:
    """`only`: trials with one of these members, or `mistakes`."""

    def wanted(*members: str) -> bool:
        return not only or bool({catalog.name_of(name) for name in only} & set(members))

    if wanted(MISTAKES):
        yield from mistakes(mode)
    for backbone in catalog.names("backbones"):
        fit = fitting(backbone)
        for some in [[name] for name in fit] + ([fit] if len(fit) > 1 else []):
            if wanted(backbone, *some):
                yield f"{backbone} {'+'.join(some)}", partial(objectives_trial, mode, backbone, some)
        for task in catalog.names("tasks"):
            for options in variants_of(task):
                if wanted(backbone, task):
                    yield f"{backbone} {task} {options}", partial(task_trial, mode, backbone, task, options)
        by_gradients = [name for name in fit if not issubclass(_objective(name), SelfUpdatingObjective)]
        if wanted(backbone) and by_gradients:
            yield f"{backbone} loop", partial(loop_trial, mode, backbone, by_gradients)


def _objective(name: str) -> type[Objective]:
    kind: type[Objective] = catalog.find("objectives", name)
    return kind


def sent(data: Any, *, device: Any = None, tensor: Callable[..., torch.Tensor] = torch.tensor, **options: Any) -> Any:
    return tensor(data, **options).to(device or "cpu")


def plain_gru(self: Any, given: torch.Tensor, state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """A GRU written out: torch's fused cell has no fake kernel."""
    before = given.new_zeros(given.shape[1], self.hidden_size) if state is None else state[0]
    states = []
    for x in given.unbind(0):
        left = (x @ self.weight_ih_l0.t() + self.bias_ih_l0).chunk(3, 1)
        right = (before @ self.weight_hh_l0.t() + self.bias_hh_l0).chunk(3, 1)
        reset, keep = torch.sigmoid(left[0] + right[0]), torch.sigmoid(left[1] + right[1])
        before = torch.lerp(torch.tanh(left[2] + reset * right[2]), before, keep)
        states.append(before)
    return torch.stack(states), before[None]


def main() -> None:
    global DEVICE
    parser = argparse.ArgumentParser(description="Run training steps of every member on a fake device.")
    parser.add_argument("--plugin", metavar="FILE", action="append", default=[], help="a Python file with members")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="trials with this member")
    given = parser.parse_args()
    for file in given.plugin:
        catalog.add_plugin(file)
    _setup_privateuseone_for_python_backend(KIND)
    DEVICE = torch.device(f"{KIND}:0")
    torch.tensor = sent  # type: ignore[assignment]
    torch.nn.GRU.forward = plain_gru  # type: ignore[assignment]
    outcomes = {name: outcome(trial) for name, trial in trials(FakeTensorMode(), given.only)}
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
