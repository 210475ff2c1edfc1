"""The folder of a run: checkpoints while it runs, the model itself when it is done.

    out/checkpoints/step-00001000/   a whole model folder + state.safetensors + run.json + recipe.yaml + manifest.json
    out/metrics.jsonl, recipe.yaml   while running; config.json, model.safetensors, report.html, ... at the end

In: the run's parts at a step. Out: a checkpoint that is whole or absent; the newest one, verified, to go on from.

Notable choices
- `state.safetensors` holds tensors only and `run.json` everything that depends on the clock, so equal runs give equal
  bytes of weights and optimizer state.
- The folder itself is locked while a run writes into it: the lock ends with the process and leaves nothing behind.
- The finished model is linked, not copied, from its last checkpoint: finishing needs no disk space.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

from keel import folders
from keel.corpus.stream import Cursor
from keel.errors import UserError
from keel.hugging_face.folder import save_model
from keel.learner.learner import Learner
from keel.learner.task_setup import TaskSetup
from keel.tokenizers.library import LibraryTokenizer
from keel.training.loop import State
from keel.training.optimizer import optimizer_tensors

GROWING = ("metrics.jsonl", "report.html")  # change when a finished run is made longer, so they have no sums
BEGUN = ("checkpoints", "recipe.yaml", "metrics.jsonl")  # what a run begins with
MODEL_FILES_ONLY_HERE = ("state.safetensors", "run.json")  # of no use to a finished model's reader


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What is saved of a run at a step."""

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
        return sorted(p for p in self.checkpoints.glob("step-*") if p.is_dir())

    @contextlib.contextmanager
    def locked(self, create: bool) -> Iterator[None]:
        """Keeps a second run out for as long as this one goes on, however it ends."""
        if create:
            self.out.mkdir(parents=True, exist_ok=True)
        if fcntl is None or not self.out.is_dir():  # that there is nothing to resume is said elsewhere
            yield
            return
        handle = os.open(self.out, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise UserError(
                f"{self.out}: another run is at work there; wait for its end, or choose another --out"
            ) from None
        except OSError:  # a file system without locks
            pass
        try:
            yield
        finally:
            os.close(handle)

    def check_new(self) -> None:
        """Refuses to walk over another run, or over anything else."""
        if self.steps() or (self.checkpoints.is_dir() and (self.out / "config.json").exists()):
            raise UserError(f"{self.out} already holds a run; add --resume to go on with it, or choose another --out")
        if not self._only_begun():
            folders.check_free(self.out)

    def _only_begun(self) -> bool:
        """Whether all there is was left by a run that ended before its first checkpoint; the next takes its place."""
        if not self.checkpoints.is_dir():
            return False
        left = [path.name for path in (*self.out.iterdir(), *self.checkpoints.iterdir())]
        return all(name in BEGUN or name.startswith(folders.TEMPORARY) for name in left)

    def begin(self, recipe_yaml: str) -> None:
        self.check_new()
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        folders.write_file(self.out / "recipe.yaml", recipe_yaml)
        self.metrics.write_text("")

    def save(self, parts: Checkpoint, keep: int) -> Path:
        """Writes a checkpoint and removes the oldest ones."""
        target = self.checkpoints / f"step-{parts.state.step:08d}"
        if not target.exists() or parts.setup:  # what a task fits at its last evaluation belongs to the last step
            with self._disk_full_explained(), folders.write_folder(target, parts.facts) as folder:
                save_model(folder, parts.learner, parts.tokenizer, parts.card, parts.setup)
                folders.write_tensors(folder / "state.safetensors", optimizer_tensors(parts.optimizer, parts.learner))
                (folder / "run.json").write_text(json.dumps({**asdict(parts.state), **parts.facts}, indent=2))
                (folder / "recipe.yaml").write_text(parts.recipe_yaml, encoding="utf-8")
        for old in self.steps()[:-keep]:
            shutil.rmtree(old)
        return target

    @contextlib.contextmanager
    def _disk_full_explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # safetensors reports a full disk as an error of its own, with the text alone
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            if not full and not re.search(r"os error (28|122)\b", str(error)):
                raise
            kept = self.steps()
            intact = f"the previous checkpoint {kept[-1]} is intact" if kept else "there was no earlier checkpoint"
            raise UserError(
                f"{self.out}: no space left on the disk for a checkpoint; {intact}. Free some space, then add --resume"
            ) from None

    def latest(self) -> tuple[Path, State, dict[str, Any]]:
        """The newest checkpoint, verified. A damaged one is refused by name, and the last good one offered."""
        for left in self.out.glob(f"**/{folders.TEMPORARY}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        steps = self.steps()
        if not steps:
            raise UserError(f"{self.out}: there is no checkpoint to resume from; start without --resume")
        try:
            folders.verify_folder(steps[-1])
        except UserError as error:
            raise UserError(f"{error}{self._offer(steps[:-1])}") from None
        facts = json.loads((steps[-1] / "run.json").read_text())
        cursors = {name: Cursor(**c) for name, c in facts.pop("cursors").items()}
        state = State(facts.pop("step"), facts.pop("tokens"), facts.pop("elapsed"), cursors)
        return steps[-1], state, facts

    def _offer(self, older: list[Path]) -> str:
        for path in reversed(older):
            with contextlib.suppress(UserError):
                folders.verify_folder(path)
                return (
                    f". The last good checkpoint is {path}: remove the damaged folder, and --resume goes on from there"
                )
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

    def finish(self, facts: dict[str, Any]) -> None:
        """Makes `out` itself the model folder."""
        last = self.steps()[-1]
        (self.out / folders.MANIFEST).unlink(missing_ok=True)  # that of an earlier end does not fit what follows
        for path in last.iterdir():
            if path.name == folders.MANIFEST or path.name in MODEL_FILES_ONLY_HERE:
                continue
            folders.link_or_copy(path, self.out / path.name)
        folders.write_manifest(self.out, facts, "*", leave_out=GROWING)
