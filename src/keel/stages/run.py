"""One training run, whatever it learns: begin or go on, train, save, and say how to go on if it was stopped.

In: a `Plan` made by a stage. Out: the state after the last step, and everything in the run's folder.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from keel import __version__
from keel.checkpoint import read_tensors
from keel.errors import Stopped, UserError
from keel.interfaces import Rows
from keel.training import loop
from keel.training.learner import Learner
from keel.training.machine import default_threads, keep_freed_memory
from keel.training.model_folder import Purpose, load_model
from keel.training.optimizer import make_optimizer, restore_optimizer
from keel.training.precision import settle_precision
from keel.training.progress import TrainingProgress
from keel.training.run_folder import RunFolder
from keel.training.settings import TrainingSettings


@dataclass(frozen=True)
class Plan:
    """What a stage asks of a run."""

    verb: str
    learner: Learner
    tokenizer: Any
    settings: TrainingSettings
    source: Callable[[float, loop.Cursors], tuple[list[Rows], loop.Cursors]]
    evaluate: Callable[[], dict[str, float]]
    data: str  # fingerprint of what is learnt from
    recipe_yaml: str
    same_recipe: Callable[[Path], bool]  # whether the recipe beside a checkpoint is the one of this run
    card: str
    opening: str
    resume_command: str
    scales: Mapping[nn.Parameter, float] = field(default_factory=dict)
    purpose: Callable[[], Purpose | None] = lambda: None


def run(
    plan: Plan,
    out: str,
    device: torch.device,
    *,
    resume: bool = False,
    threads: int | None = None,
    quiet: bool = False,
    began: float | None = None,
) -> tuple[loop.State, RunFolder, dict[str, Any]]:
    """Trains to the end. Raises `Stopped` if asked to stop, with everything saved."""
    folder = RunFolder(Path(out))
    with folder.locked(create=not resume):
        return _run(plan, folder, device, resume, threads, quiet, began or time.monotonic())


def _run(
    plan: Plan,
    folder: RunFolder,
    device: torch.device,
    resume: bool,
    threads: int | None,
    quiet: bool,
    began: float,
) -> tuple[loop.State, RunFolder, dict[str, Any]]:
    settings = plan.settings
    learner = plan.learner.to(device)
    torch.set_num_threads(threads or default_threads())
    facts: dict[str, Any] = {
        "data": plan.data,
        "keel_version": __version__,
        "torch": torch.__version__.split("+")[0],
        "threads": threads or default_threads(),
        "precision": settle_precision(settings.precision, device),
        "optimizer": settings.optimizer,
    }
    if resume:
        path, state, facts = _find_checkpoint(folder, plan, facts, threads)
    else:
        state = loop.State()
        folder.begin(plan.recipe_yaml)
    optimizer = make_optimizer(learner, settings, plan.scales, facts["precision"])
    if resume:
        learner.load_state_dict(load_model(path).learner.state_dict())
        restore_optimizer(optimizer, learner, read_tensors(path, "state"))
    torch.set_num_threads(facts["threads"])
    keep_freed_memory()
    progress = TrainingProgress(quiet)
    start = f"resuming at step {state.step:,}" if state.step else "starting"
    progress.note(f"{start}: {plan.opening}")

    def log(entry: dict[str, Any]) -> None:
        folder.log(entry)
        if entry["kind"] == "evaluation":
            figures = [f"{k} {v:.4f}" for k, v in entry.items() if "." in k]
            found = ", ".join(figures) or "no documents, so there is nothing to judge by"
            progress.note(f"held-out at step {entry['step']:,}: {found}")

    def save(state: loop.State) -> None:
        made_by = {"keel": plan.verb, **facts}
        folder.save(
            learner,
            optimizer,
            plan.tokenizer,
            state,
            made_by,
            plan.recipe_yaml,
            plan.card,
            settings.keep,
            plan.purpose(),
        )

    parts = loop.Run(
        learner,
        optimizer,
        plan.tokenizer,
        plan.source,
        settings,
        state,
        device,
        facts["precision"],
        plan.evaluate,
        save,
        log,
        progress.show,
        began,
    )
    try:
        state, stopped = loop.train(parts)
    finally:
        progress.close()
    if stopped:
        raise Stopped(f"stopped at step {state.step:,}; everything is saved. Go on with:\n  {plan.resume_command}")
    return state, folder, {"keel": plan.verb, **facts}


def _find_checkpoint(
    folder: RunFolder, plan: Plan, facts: dict[str, Any], threads: int | None
) -> tuple[Path, loop.State, dict[str, Any]]:
    """The newest checkpoint, if it is one of this run; with what is to stay as it was when the run began."""
    path, state, saved = folder.latest()
    if saved["data"] != facts["data"]:
        raise UserError(f"{folder.out} was trained on other data; resume with the one it began with")
    if not plan.same_recipe(path / "recipe.yaml") or saved.get("optimizer", "adamw") != facts["optimizer"]:
        raise UserError(
            f"{folder.out} was begun with another recipe; resume with --set and recipe unchanged ({path}/recipe.yaml)"
        )
    if threads and threads != saved["threads"]:
        print(f"keel: the run began with {saved['threads']} threads; {threads} give other bits", file=sys.stderr)
        saved["threads"] = threads
    folder.forget_metrics_after(state.step)
    return path, state, {k: v for k, v in saved.items() if k != "keel"}


def find_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(f"--device {name}: not available here; `keel doctor` tells what is") from None
    return device


def parameters(learner: Learner) -> int:
    return sum(p.numel() for p in learner.parameters())


def last_evaluation(folder: RunFolder) -> dict[str, Any]:
    entries = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    last = [e for e in entries if e["kind"] == "evaluation"][-1:]
    return {k: v for e in last for k, v in e.items() if "." in k or k == "loss"}
