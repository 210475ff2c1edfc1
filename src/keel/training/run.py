"""One run of pretraining or fine-tuning: starts or resumes, trains, saves, and prints how to resume if stopped.

In: a `RunPlan` made by a stage. Out: the state after the last step, and everything in the run's folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from keel import __version__
from keel.console import say
from keel.errors import Stopped, UserError
from keel.files.folders import SealedFiles
from keel.files.tensors import read_tensors
from keel.hugging_face.folder import load_model
from keel.learner.learner import Learner
from keel.learner.task_setup import TaskSetup
from keel.machine import check_threads, default_threads, keep_freed_memory
from keel.tokenizers.library import LibraryTokenizer
from keel.training import loop
from keel.training.callbacks import Callbacks
from keel.training.optimizer import make_optimizer, restore_optimizer
from keel.training.precision import choose_precision
from keel.training.progress import TrainingProgress
from keel.training.run_folder import Checkpoint, RunFolder
from keel.training.settings import TrainingSettings
from keel.training.state import Cursors, State
from keel.training.tracking import Tracker, check_tracker, open_tracker
from keel.values import Rows


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run as a stage defines it."""

    verb: str
    learner: Learner
    tokenizer: LibraryTokenizer
    settings: TrainingSettings
    source: Callable[[float, Cursors], tuple[list[Rows], Cursors]]
    evaluate: Callable[[int], dict[str, float]]  # on so many parts of the held-out data, the first ones
    data: str  # fingerprint of the training data
    recipe_yaml: str
    same_recipe: Callable[[Path], bool]  # whether a checkpoint's recipe is that of this run
    card: str
    opening: str
    resume_command: str
    published_start: bool = False  # whether the weights that it starts from were pretrained elsewhere
    evaluation_parts: int = 1  # of the held-out data; 0: there are none
    remark: Callable[[dict[str, Any]], str] = lambda entry: ""  # what to say about an evaluation, if anything
    score: Callable[[dict[str, float]], float] | None = None  # of an evaluation, if the best model is kept
    patience: int | None = None  # evaluations without a better score, after which the run ends
    scales: Mapping[nn.Parameter, float] = field(default_factory=dict)
    setup: Callable[[], TaskSetup | None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where and how to run; none of it changes the results, except the number of threads, in the last bits."""

    out: str
    device: torch.device
    resume: bool = False
    threads: int | None = None
    quiet: bool = False
    track: str | None = None  # the name of a tracker
    callbacks: Callbacks = field(default_factory=Callbacks)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.threads is not None:
            check_threads(self.threads)
        if self.track is not None:
            check_tracker(self.track)


def run(plan: RunPlan, options: RunOptions) -> tuple[State, RunFolder, dict[str, Any]]:
    """Trains to the end. If a stop is requested, saves everything and raises `Stopped`."""
    folder = RunFolder(Path(options.out))
    with folder.locked(create=not options.resume):
        return _run(plan, folder, options)


def _run(plan: RunPlan, folder: RunFolder, options: RunOptions) -> tuple[State, RunFolder, dict[str, Any]]:
    learner, settings = plan.learner.to(options.device), plan.settings
    torch.set_num_threads(options.threads or default_threads())
    facts = _facts(plan, options)
    state, path = State(), None
    if options.resume:
        path, state, facts = _find_checkpoint(folder, plan, facts, options.threads)
    else:
        folder.begin(plan.recipe_yaml)
    optimizer = make_optimizer(learner, settings, plan.scales, facts["precision"])
    if path is not None:
        learner.load_state_dict(load_model(path).learner.state_dict())
        restore_optimizer(optimizer, learner, read_tensors(SealedFiles(path), "state"))
    torch.set_num_threads(facts["threads"])
    keep_freed_memory()
    made_by = {"keel": plan.verb, **facts}
    tracker = open_tracker(options.track, folder.out, state) if options.track else None
    progress = TrainingProgress(options.quiet)
    progress.note(f"{f'resuming at step {state.step:,}' if state.step else 'starting'}: {plan.opening}")
    parts = loop.Run(
        learner=learner,
        optimizer=optimizer,
        tokenizer=plan.tokenizer,
        source=plan.source,
        settings=settings,
        state=state,
        device=options.device,
        precision=facts["precision"],
        evaluate=plan.evaluate,
        evaluation_parts=plan.evaluation_parts,
        score=plan.score,
        patience=plan.patience,
        save=lambda state: folder.save(_checkpoint(plan, optimizer, state, made_by), settings.keep_checkpoints),
        log=lambda entry: _log(plan, folder, tracker, progress, entry),
        show=progress.show,
        callbacks=options.callbacks,
        began=options.began,
    )
    try:
        state, stopped = loop.train(parts)
    finally:
        progress.close()
        if tracker:
            tracker.close()
    if stopped:
        raise Stopped(f"stopped at step {state.step:,}; everything is saved. Resume with:\n  {plan.resume_command}")
    return state, folder, made_by


def _facts(plan: RunPlan, options: RunOptions) -> dict[str, Any]:
    """Recorded with every checkpoint; a resumed run keeps the values it began with."""
    return {
        "data": plan.data,
        "keel_version": __version__,
        "torch": torch.__version__.split("+")[0],
        "threads": options.threads or default_threads(),
        "precision": choose_precision(plan.settings.precision, options.device),
        "optimizer": plan.settings.optimizer,
        "published_start": plan.published_start,
    }


def _checkpoint(plan: RunPlan, optimizer: torch.optim.Optimizer, state: State, made_by: dict[str, Any]) -> Checkpoint:
    return Checkpoint(
        learner=plan.learner,
        optimizer=optimizer,
        tokenizer=plan.tokenizer,
        state=state,
        facts=made_by,
        recipe_yaml=plan.recipe_yaml,
        card=plan.card,
        resume_command=plan.resume_command,
        setup=plan.setup(),
    )


def _log(
    plan: RunPlan, folder: RunFolder, tracker: Tracker | None, progress: TrainingProgress, entry: dict[str, Any]
) -> None:
    folder.log(entry)
    if tracker:
        tracker.log(entry)
    if entry["kind"] == "evaluation":
        figures = [f"{k} {v:.4f}" for k, v in entry.items() if "." in k]
        shown = ", ".join(figures) or "no held-out documents, so nothing to evaluate on"
        partly = f" ({entry['held_out_share']:.0%} of the rows)" if "held_out_share" in entry else ""
        progress.note(f"held-out at step {entry['step']:,}{partly}: {shown}")
        if remark := plan.remark(entry):
            progress.note(remark)


def _find_checkpoint(
    folder: RunFolder, plan: RunPlan, facts: dict[str, Any], threads: int | None
) -> tuple[Path, State, dict[str, Any]]:
    """The newest checkpoint, checked to belong to this run; and the facts that a resumed run keeps."""
    path, state, saved = folder.latest()
    if saved["data"] != facts["data"]:
        raise UserError(f"{folder.out} was trained on other data; resume with the data it began with")
    if not plan.same_recipe(path / "recipe.yaml") or saved.get("optimizer", "adamw") != facts["optimizer"]:
        raise UserError(
            f"{folder.out} was started with another recipe; resume with the same recipe and --set ({path}/recipe.yaml)"
        )
    if threads and threads != saved["threads"]:
        say(f"keel: the run began with {saved['threads']} threads; {threads} change the last bits of the results")
        saved["threads"] = threads
    folder.forget_metrics_after(state.step)
    return path, state, {k: v for k, v in saved.items() if k != "keel"}


def parameters(learner: Learner) -> int:
    return sum(p.numel() for p in learner.parameters())
