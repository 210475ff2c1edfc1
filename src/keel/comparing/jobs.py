"""The jobs of a comparison: pretraining and fine-tuning runs, each done once, in this process or in one of its own.

In: what to train, on what device, and how many runs in parallel. Out: model folders and results.

Notable choices
- A job has a folder, and a finished job is read from it instead of repeated: so a stopped comparison can be resumed.
- A run with a time budget has its own process. So does every job if several run in parallel, each with its share of the
  threads: on a few cores, small models train faster in parallel with one thread each than one after the other with all
  threads (docs/notebook.md).
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from keel import recipe as recipes
from keel.comparing.processes import Command, run_apart, words
from keel.comparing.tasks import LabelledTask
from keel.errors import UserError
from keel.files.folders import MANIFEST
from keel.finetuning.results import RESULT
from keel.hugging_face.folder import load_model
from keel.machine import default_threads
from keel.reporting.report import METRICS, read_metrics
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain
from keel.training.progress import clock
from keel.training.run import parameters
from keel.training.run_folder import RunFolder


@dataclass(frozen=True)
class Machine:
    """Where jobs run, and how many in parallel; `threads` is the total."""

    threads: int | None = None
    device: str = "auto"
    quiet: bool = False
    at_once: int = 1

    def check(self) -> None:
        threads = self.threads or default_threads()
        if self.at_once < 1:
            raise UserError(f"--at-once {self.at_once}: must be at least 1")
        if self.at_once > threads:
            raise UserError(f"--at-once {self.at_once}: there are only {threads} threads to share; see --threads")

    def of_each(self) -> dict[str, Any]:
        """The options that each job's stage gets."""
        if self.at_once == 1:
            return {"threads": self.threads, "device": self.device, "quiet": self.quiet}
        share = (self.threads or default_threads()) // self.at_once
        return {"threads": share, "device": self.device, "quiet": True}  # several bars would overwrite each other


class Job(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def timed(self) -> bool:
        """Whether it has a time budget."""

    @property
    def finished(self) -> bool: ...
    def here(self, machine: dict[str, Any]) -> None:
        """Runs or resumes it in this process."""

    def command(self, machine: dict[str, Any]) -> list[str]:
        """The same, as arguments of `keel`."""

    def tidy(self) -> None:
        """Removes files that are not needed once it is finished."""


@dataclass(frozen=True)
class Pretraining:
    recipe: str
    seed: int
    model: Path
    corpus: str
    overrides: tuple[str, ...]
    budget: str | None = None
    tokens: int | None = None

    @property
    def title(self) -> str:
        return f"pretraining {self.recipe}, seed {self.seed}"

    @property
    def timed(self) -> bool:
        return self.budget is not None

    @property
    def finished(self) -> bool:
        return (self.model / MANIFEST).is_file()

    def here(self, machine: dict[str, Any]) -> None:
        pretrain(self.recipe, **self._given(), **machine)

    def command(self, machine: dict[str, Any]) -> list[str]:
        return ["pretrain", self.recipe, *words(self._given() | machine)]

    def tidy(self) -> None:
        shutil.rmtree(self.model / "checkpoints", ignore_errors=True)  # with optimizer states; not needed any more

    def _given(self) -> dict[str, Any]:
        changes = [*self.overrides, f"training.seed={self.seed}"]
        if self.tokens:
            steps = -(-self.tokens // recipes.load(self.recipe, self.overrides).training.batch_tokens)
            changes.append(f"training.steps={steps}")
        given = {"corpus": self.corpus, "out": str(self.model), "budget": self.budget, "overrides": changes}
        return {**given, "resume": _begun(self.model)}


@dataclass(frozen=True)
class Finetuning:
    """Its result is kept, its model is not: it can be trained again."""

    model: str
    task: LabelledTask
    changes: tuple[str, ...]
    out: Path
    title: str
    timed: bool = False

    @property
    def finished(self) -> bool:
        return (self.out / RESULT).is_file()

    def here(self, machine: dict[str, Any]) -> None:
        finetune(self.model, self.task.kind, **self._given(), **machine)

    def command(self, machine: dict[str, Any]) -> list[str]:
        return ["finetune", self.model, self.task.kind, *words(self._given() | machine)]

    def tidy(self) -> None:
        for path in [*self.out.glob("*.safetensors"), *self.out.glob("*.json")]:
            if path.name != RESULT:
                path.unlink()
        shutil.rmtree(self.out / "checkpoints", ignore_errors=True)

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / RESULT).read_text(encoding="utf-8"))
        return found

    def _given(self) -> dict[str, Any]:
        given = {"train": self.task.train, "dev": self.task.dev, "overrides": [*self.task.overrides, *self.changes]}
        return {**given, "out": str(self.out), "resume": _begun(self.out)}


def _begun(out: Path) -> bool:
    """Whether there is a checkpoint to resume from. If not, the folder is cleared; an error if a run is using it."""
    folder = RunFolder(out)
    if folder.steps():
        return True
    with folder.locked(create=False):
        shutil.rmtree(out, ignore_errors=True)
    return False


def run_jobs(jobs: Sequence[Job], machine: Machine, say: Callable[[str], None], after: Callable[[], object]) -> None:
    """Runs the jobs that are not finished; `after` is called after each."""
    for job in jobs:
        if job.finished:
            job.tidy()  # the comparison may have been stopped before that
    todo = [job for job in jobs if not job.finished]
    each, began, ended = machine.of_each(), time.monotonic(), 0

    def announced() -> Iterator[Job]:
        for number, job in enumerate(todo, 1):
            spent = time.monotonic() - began
            left = f"; about {clock(spent / ended * (len(todo) - ended))} left in total" if ended else ""
            say(f"{number} of {len(todo)}: {job.title}{left}")
            yield job

    def end(job: Job) -> None:
        nonlocal ended
        job.tidy()
        ended += 1
        after()

    def apart(job: Job) -> Command:
        return Command(job.title, job.command(each), lambda: job.finished, lambda: end(job))

    if machine.at_once > 1:
        run_apart(map(apart, announced()), machine.at_once)
        return
    for job in announced():
        if job.timed:
            run_apart([apart(job)])
        else:
            job.here(each)
            end(job)


def model_figures(model: Path) -> dict[str, Any]:
    """The training statistics in a model folder; of a model not trained by Keel, only its size is known."""
    records = read_metrics(model / METRICS)[0] if (model / METRICS).is_file() else []
    held_out = [r for r in records if r["kind"] == "evaluation"]
    speeds = [r["tokens_per_second"] for r in records if r["kind"] == "train" and r.get("tokens_per_second")]
    last = held_out[-1] if held_out else {}
    return {
        "model": str(model),
        "parameters": parameters(load_model(model).learner),
        "tokens": max((r["tokens"] for r in records if "tokens" in r), default=0),
        "seconds": max((r["elapsed"] for r in records if "elapsed" in r), default=0.0),
        "tokens_per_second": statistics.median(speeds) if speeds else 0.0,
        "held_out": {key: value for key, value in last.items() if "." in key},
        "curve": [(r["elapsed"] / 60, {k: v for k, v in r.items() if k.endswith("loss")}) for r in held_out],
    }
