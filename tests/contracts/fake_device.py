"""A training step of every backbone with every objective and task on a device that is not there. Prints JSON.

Shapes and devices are real, numbers are not (fake tensors), so a tensor made on the CPU by mistake, or a hidden wait
for the device (`.item()`, `bool(tensor)`), is an error that this program reports: {"bert masked_lm": "ok", ...}.

Notable choices
- The device is torch's spare one under a name of our own, not cuda: a torch built without CUDA cannot even index a fake
  cuda tensor, nor record it for the backward pass.
- `torch.tensor(data, device=...)` goes past fake tensors to the real device, so here it is made of the two calls it
  stands for; attention runs by its plain formula, for the spare device has no kernels to choose from.
- A program of its own, because registering a device changes the whole process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from keel import catalog
from keel.errors import UserError
from keel.interfaces import Backbone, Rows
from keel.text.labelled import LabelledData
from keel.training import loop
from keel.training.encoder import EncoderUse
from keel.training.learner import Learner
from keel.training.model_folder import Purpose, assemble
from keel.training.settings import TrainingSettings

KIND = "fakegpu"
DEVICE = torch.device("cpu")  # set once the device is registered
LENGTHS = (32, 21, 21, 12, 7, 7, 5, 5)
LABELS: dict[str, Any] = {"labels": ["a", "b", "c"]}
TASKS: list[tuple[str, dict[str, Any]]] = [
    *(("classify", LABELS | {"pooling": pooling}) for pooling in ("cls", "mean", "attention")),
    ("classify", LABELS | {"class_weights": {"a": 2.0}, "smoothing": 0.1}),
    ("regress", {}),
    ("tag", LABELS),
    ("tag", LABELS | {"crf": True}),
    ("answer", {}),
    ("choose", {}),
    *(("translate", {"decoder": decoder}) for decoder in ("transformer", "rnn", "rnn-attention")),
]


class Vocabulary:
    size, pad, unk, cls, sep, mask = 70, 0, 1, 2, 3, 4


def rows() -> Rows:
    total, count = sum(LENGTHS), len(LENGTHS)
    source = np.random.default_rng(0)
    special = np.zeros(total, bool)
    special[np.cumsum(LENGTHS) - 1] = True
    keys = np.arange(count, dtype=np.uint64)
    ids, segments = source.integers(5, 70, total), source.integers(0, 2, total)
    each = np.arange(count)
    answers = {
        "next_sentence": each % 2,
        "sentence_order": each % 2,
        "classify": each % 2,
        "regress": each / count,
        "answer": np.stack([each % 3, each % 3 + 1], 1),
        "choose.example": each // 2,
        "choose.place": each % 2,
        "choose.right": each // 2 % 2,
        "translate": np.where(np.arange(6) < 3 + each[:, None] % 4, 7, -1),
    }
    return Rows(ids, LENGTHS, segments, special, ~special, keys, answers, {"tag": np.arange(total) % 4 - 1})


def on_device(mode: FakeTensorMode, learner: Learner) -> Learner:
    """Fake parameters in place of those on the meta device."""
    shapes = {name: tensor.shape for name, tensor in learner.state_dict().items()}
    with mode:
        fakes = {name: torch.empty(shape, device=DEVICE) for name, shape in shapes.items()}
    learner.load_state_dict(fakes, assign=True)
    return learner


def make_backbone(name: str) -> Backbone:
    small = {"vocabulary": 70, "layers": 2, "width": 16, "heads": 2, "feed_forward": 24, "positions": 32}
    small |= {
        "embedding_width": 8,
        "neighbourhood": 8,
        "cells": 24,
        "filters": [(1, 4), (3, 6)],
        "spelling": 9,
        "buckets": 50,
        "padding": 0,
        "pooler": True,
    }
    kind = catalog.find("backbones", name)
    made: Backbone = kind(kind.Config(**{k: v for k, v in small.items() if k in kind.Config.model_fields}))
    return made


def make(backbone: str, objectives: list[str]) -> Learner:
    with torch.device("meta"):
        return assemble(make_backbone(backbone), {name: {} for name in objectives})


def goes_with(backbone: str, objective: str) -> bool:
    try:
        make(backbone, [objective])
    except UserError:
        return False
    return True


def make_for_task(backbone: str, task: str, options: dict[str, Any]) -> Learner:
    kind = catalog.find("tasks", task)
    with torch.device("meta"):
        purpose = Purpose(kind(kind.Config(**options), LabelledData()), EncoderUse())
        return purpose.learner(make_backbone(backbone))


def step(mode: FakeTensorMode, learner: Learner) -> None:
    """Forward, predictions and backward, all on the device."""
    with mode, sdpa_kernel(SDPBackend.MATH):
        batch = learner.train().prepare(rows(), Vocabulary(), DEVICE)  # type: ignore[arg-type]
        scores = learner(batch)
        loop._objective_sum(learner, scores, learner.answer_counts(batch)).backward()
        batch, _ = learner.disguise(batch)
        for name, objective in learner.objectives.items():
            if objective.searches:
                continue
            assert objective.predict(learner.backbone, batch).device.type == KIND, f"{name}: predictions elsewhere"  # type: ignore[operator]
            right = scores[name].correct
            assert scores[name].loss.device.type == KIND and (right is None or right.device.type == KIND)
        gradients = [p.grad for p in learner.parameters() if p.grad is not None]
        assert gradients and all(g.device.type == KIND for g in gradients), "gradients elsewhere"


def loop_step(mode: FakeTensorMode, learner: Learner) -> None:
    """The loop's own step: the first wait is for the figures, after the last slice's backward pass."""
    nothing: Any = lambda *_: None  # noqa: E731
    parts = [rows().pick([0, 1]), rows().pick([2, 3, 4])]
    with mode, sdpa_kernel(SDPBackend.MATH):
        run = loop.Run(
            learner,
            torch.optim.SGD(learner.parameters(), lr=0.1),
            Vocabulary(),  # type: ignore[arg-type]
            lambda progress, cursors: (parts, cursors),
            TrainingSettings(lanes=2),  # which are for the CPU alone
            loop.State(),
            DEVICE,
            "fp32",
            dict,
            nothing,
            nothing,
            nothing,
        )
        slices: list[int] = []
        learner.register_forward_hook(lambda *_: slices.append(1))
        try:
            loop._gradients(run, loop.State(), 0.0)
        except Exception as error:
            if "DataDependent" not in type(error).__name__:
                raise
        assert len(slices) == len(parts), f"waited for the device after slice {len(slices)} of {len(parts)}"
        assert all(p.grad is not None for p in learner.parameters()), "waited before the backward pass was done"


def outcome(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "ok"


def mistakes(mode: FakeTensorMode) -> dict[str, str]:
    """What this program is for, done wrong on purpose: each must not be 'ok'."""

    def wrong(body: Callable[[torch.Tensor], Any]) -> Callable[[], None]:
        def run() -> None:
            with mode:
                body(torch.ones(3, 3, device=DEVICE))

        return run

    return {
        "item": outcome(wrong(lambda x: x.sum().item())),
        "bool": outcome(wrong(lambda x: bool(x.sum() > 0))),
        "cpu tensor": outcome(wrong(lambda x: x + torch.arange(3))),
        "cpu product": outcome(wrong(lambda x: x @ torch.ones(3, 3))),
    }


def sent(data: Any, *, device: Any = None, tensor: Callable[..., torch.Tensor] = torch.tensor, **options: Any) -> Any:
    return tensor(data, **options).to(device or "cpu")


def plain_gru(self: Any, given: torch.Tensor, state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """A GRU by its formulas: the fused cell that torch takes elsewhere has no fake kernel."""
    before = given.new_zeros(given.shape[1], self.hidden_size) if state is None else state[0]
    found = []
    for x in given.unbind(0):
        left = (x @ self.weight_ih_l0.t() + self.bias_ih_l0).chunk(3, 1)
        right = (before @ self.weight_hh_l0.t() + self.bias_hh_l0).chunk(3, 1)
        reset, keep = torch.sigmoid(left[0] + right[0]), torch.sigmoid(left[1] + right[1])
        before = torch.lerp(torch.tanh(left[2] + reset * right[2]), before, keep)
        found.append(before)
    return torch.stack(found), before[None]


def main() -> None:
    global DEVICE
    _setup_privateuseone_for_python_backend(KIND)
    DEVICE = torch.device(f"{KIND}:0")
    torch.tensor = sent  # type: ignore[assignment]
    torch.nn.GRU.forward = plain_gru  # type: ignore[assignment]
    torch.set_num_threads(2)
    mode = FakeTensorMode()
    everything = catalog.names("objectives")
    found: dict[str, Any] = {"mistakes": mistakes(mode)}
    for backbone in catalog.names("backbones"):
        fitting = [name for name in everything if goes_with(backbone, name)]
        for objectives in [[name] for name in fitting] + [fitting]:
            learner = on_device(mode, make(backbone, objectives))
            found[f"{backbone} {'+'.join(objectives)}"] = outcome(lambda learner=learner: step(mode, learner))
        for task, options in TASKS:
            learner = on_device(mode, make_for_task(backbone, task, options))
            found[f"{backbone} {task} {options}"] = outcome(lambda learner=learner: step(mode, learner))
        learner = on_device(mode, make(backbone, fitting))
        found[f"{backbone} loop"] = outcome(lambda learner=learner: loop_step(mode, learner))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
