"""The folder of a run: checkpoints while it runs, the model itself when it is done.

    out/checkpoints/step-00001000/   a model folder + state.safetensors + run.json + recipe.yaml + manifest.json
    out/metrics.jsonl, recipe.yaml   while running; tensorboard/ with `--track`
    out/config.json, model.safetensors, report.html, ...   at the end

In: the state of a run at a step. Out: a checkpoint, written completely or not at all; the newest one, verified, to
resume from.

Notable choices
- `state.safetensors` holds tensors only and `run.json` everything that depends on the clock, so identical runs
  give byte-identical weights and optimizer states.
- A checkpoint is never overwritten: if the final evaluation tunes the task (a threshold), a second one of the same step
  is written, `step-00001000-final`. Older ones are removed only after the new one is complete and on disk.
- The checkpoint with the best score, where there is one, is kept besides the newest, and the finished model is linked
  from it.
- Other folders beside the checkpoints (`step-00001000.bak`) are neither read nor removed.
- The finished model is linked, not copied, from its checkpoint: finishing needs no disk space.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from keel.corpus.stream import Cursor
from keel.errors import UserError
from keel.files import folders
from keel.files.locks import LOCK, locked
from keel.files.tensors import first_not_finite, write_tensors
from keel.hugging_face.folder import save_model
from keel.learner.learner import Learner
from keel.learner.task_setup import TaskSetup
from keel.tokenizers.library import LibraryTokenizer
from keel.training.optimizer import optimizer_tensors
from keel.training.state import Best, State

# What a run creates before its first checkpoint.
BEGUN = ("checkpoints", "recipe.yaml", "metrics.jsonl", "tensorboard", LOCK)
STEP = re.compile(r"step-\d{8}(-final)?")
MODEL_FILES_ONLY_HERE = ("state.safetensors", "run.json")  # not needed to use a finished model


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The parts of a run that are saved at a step."""

    learner: Learner
    optimizer: torch.optim.Optimizer
    tokenizer: LibraryTokenizer
    state: State
    facts: dict[str, Any]
    recipe_yaml: str
    card: str
    setup: TaskSetup | None


class RunFolder:
    def __init__(self, out: Path) -> None:
        self.out = out
        self.checkpoints = out / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.out / "metrics.jsonl"

    def steps(self) -> list[Path]:
        """Checkpoints, oldest first."""
        return sorted(p for p in self.checkpoints.glob("step-*") if STEP.fullmatch(p.name) and p.is_dir())

    def checkpoint(self, step: int) -> Path:
        """The last checkpoint of a step."""
        saved = [path for path in self.steps() if path.name.startswith(f"step-{step:08d}")]
        if not saved:
            raise UserError(f"{self.checkpoints}: the checkpoint of step {step:,}, the best, is missing; put it back")
        return saved[-1]

    @contextlib.contextmanager
    def locked(self, create: bool) -> Iterator[None]:
        """Keeps a second run out of the folder until this one ends, however it ends."""
        if create:
            self.out.mkdir(parents=True, exist_ok=True)
        if not self.out.is_dir():  # a missing folder is reported by `latest`
            yield
            return
        with locked(self.out):
            yield

    def check_new(self) -> None:
        """Refuses to overwrite another run, or anything else."""
        if self.steps() or (self.checkpoints.is_dir() and (self.out / "config.json").exists()):
            raise UserError(f"{self.out} already contains a run; add --resume to continue it, or choose another --out")
        if not self._only_begun():
            folders.check_free(self.out)

    def _only_begun(self) -> bool:
        """Whether there are only files of a run that ended before its first checkpoint, which may be overwritten."""
        if not self.checkpoints.is_dir():
            return False
        left = [path.name for path in (*self.out.iterdir(), *self.checkpoints.iterdir())]
        return all(name in BEGUN or name.startswith(folders.TEMPORARY) for name in left)

    def begin(self, recipe_yaml: str) -> None:
        self.check_new()
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        folders.write_file(self.out / "recipe.yaml", recipe_yaml)
        self.metrics.write_text("")

    def save(self, parts: Checkpoint, keep: int) -> None:
        """Writes a checkpoint, unless it exists, and removes the oldest ones."""
        name = f"step-{parts.state.step:08d}"
        saved = [path for path in self.steps() if path.name.startswith(name)]
        target = self.checkpoints / (f"{name}-final" if saved else name)
        if not saved or not _holds(saved[-1], parts.setup):
            state = optimizer_tensors(parts.optimizer, parts.learner)
            self._check_finite(parts, state)
            with self._disk_full_explained(), folders.write_folder(target, parts.facts) as folder:
                save_model(folder, parts.learner, parts.tokenizer, parts.card, parts.setup)
                write_tensors(folder / "state.safetensors", state)
                (folder / "run.json").write_text(json.dumps({**asdict(parts.state), **parts.facts}, indent=2))
                (folder / "recipe.yaml").write_text(parts.recipe_yaml, encoding="utf-8")
        best = parts.state.best
        for old in self.steps()[:-keep]:
            if best is None or not old.name.startswith(f"step-{best.step:08d}"):
                shutil.rmtree(old)

    def _check_finite(self, parts: Checkpoint, state: dict[str, torch.Tensor]) -> None:
        name = first_not_finite(parts.learner.state_dict()) or first_not_finite(state)
        if name:
            raise UserError(
                f"{self.out}: at step {parts.state.step:,} the tensor '{name}' has values that are not numbers (NaN or "
                f"infinite), so nothing was saved; {self._intact()}. Lower training.learning_rate"
            )

    def _intact(self) -> str:
        kept = self.steps()
        return f"the previous checkpoint {kept[-1]} is intact" if kept else "there was no earlier checkpoint"

    @contextlib.contextmanager
    def _disk_full_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                f"{self.out}: no space left on the disk for a checkpoint; {self._intact()}. Free some space, then add "
                "--resume"
            ) from None

    def latest(self) -> tuple[Path, State, dict[str, Any]]:
        """The newest checkpoint, verified. If it is damaged, the error names it and the last good one."""
        folders.remove_temporary(self.out)
        steps = self.steps()
        if not steps:
            raise UserError(f"{self.out}: there is no checkpoint to resume from; start without --resume")
        try:
            folders.verify_folder(steps[-1])
        except UserError as error:
            raise UserError(f"{error}{self._offer(steps[:-1])}") from None
        facts = json.loads((steps[-1] / "run.json").read_text())
        cursors = {name: Cursor(**c) for name, c in facts.pop("cursors").items()}
        best = facts.pop("best", None)
        state = State(
            facts.pop("step"),
            facts.pop("tokens"),
            facts.pop("elapsed"),
            cursors,
            facts.pop("evaluated", 0),
            Best(**best) if best else None,
        )
        return steps[-1], state, facts

    def _offer(self, older: list[Path]) -> str:
        for path in reversed(older):
            with contextlib.suppress(UserError):
                folders.verify_folder(path)
                return f". The last good checkpoint is {path}: remove the damaged folder, and add --resume"
        return ". There is no earlier good checkpoint"

    def forget_metrics_after(self, step: int) -> None:
        """Drops log lines of steps that the resumed run will repeat, and a line cut short by a crash."""
        kept = []
        text = self.metrics.read_text(encoding="utf-8", errors="replace") if self.metrics.exists() else ""
        for line in text.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
        folders.write_file(self.metrics, "".join(kept))

    def log(self, entry: dict[str, Any]) -> None:
        with self.metrics.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def last_entry(self, kind: str) -> dict[str, Any]:
        """The last line of this kind in the log; empty: there is none."""
        entries = [json.loads(line) for line in self.metrics.read_text().splitlines()]
        return next((entry for entry in reversed(entries) if entry["kind"] == kind), {})

    def finish(self, facts: dict[str, Any], step: int | None = None) -> None:
        """Makes `out` itself the model folder, from the checkpoint of this step; None: from the last.

        The manifest of an earlier end is kept until it is replaced: after a crash in between, a mixture of both models
        fails its verification."""
        folders.remove_temporary(self.out)
        earlier = folders.read_manifest(self.out)["files"] if (self.out / folders.MANIFEST).exists() else {}
        source = self.steps()[-1] if step is None else self.checkpoint(step)
        for path in sorted(source.iterdir()):
            target = self.out / path.name
            if path.name == folders.MANIFEST or path.name in MODEL_FILES_ONLY_HERE:
                continue
            if path.name == "README.md" and target.exists():  # the user may have edited it
                continue
            self._check_ours(path, target, earlier)
            folders.link_or_copy(path, target)
        folders.write_manifest(self.out, facts, "*")

    def _check_ours(self, path: Path, target: Path, earlier: dict[str, tuple[int, str]]) -> None:
        """Refuses to replace a file that this run has not written."""
        if not target.exists() or target.samefile(path) or path.name in BEGUN:
            return
        if earlier.get(path.name) != (target.stat().st_size, folders.sha256(target)):
            raise UserError(f"{target}: was created by another program during the run; move it away, then add --resume")


def _holds(checkpoint: Path, setup: TaskSetup | None) -> bool:
    """Whether a checkpoint contains the task as it is now; the last evaluation may have tuned it."""
    if setup is None:
        return True
    saved = folders.read_json(checkpoint / "config.json")["keel"]
    return all(saved.get(key) == value for key, value in json.loads(json.dumps(setup.sections())).items())
