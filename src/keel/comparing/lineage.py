"""`keel compare lineage`: word2vec, ELMo, translators, BERT and its successors on the same tasks, on the user's data.

In: members (recipes to train, or trained models), corpora, labelled tasks. Out: a folder with every model trained here,
every result, `comparison.json`, and a page with scores, costs and learning curves.

Notable choices
- Each member is used in two ways: `features`, with a frozen encoder and the same BiLSTM for all, on a learned mix of
  its layers; and `tuned`, with all weights trained under the task's own head. The first compares static vectors and
  BERT on equal terms, the second each of them at its best.
- Members with a vocabulary of words are trained on the corpus of words, if there is one; all others on the other.
- Members need different learning rates: settings of a way can be given for a single member.
- All members are trained on the same examples, splits and seeds (those of `keel compare pretraining` for its first
  models). An expensive member may have fewer seeds than the others; the page shows how many.
- With `sizes`, a smaller training set is always contained in a larger one.
- Finished runs are not repeated: --resume continues, also within a run, and may add seeds, sizes or ways.
- Speed and memory are measured in a fresh process that predicts the development data.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from keel import recipe as recipes
from keel.comparing.jobs import Finetuning, Machine, Pretraining, model_figures, run_jobs
from keel.comparing.lineage_page import write_page
from keel.comparing.lineage_plan import TIMED_EXAMPLES, WAYS, LineagePlan, Member
from keel.comparing.recipes import RESULTS, begin_comparison, primary_scores, sources, spread
from keel.comparing.tasks import LabelledTask, check_tasks, owner_of
from keel.corpus.store import Corpus
from keel.errors import Stopped, UserError
from keel.files.folders import write_file
from keel.hugging_face.folder import load_model
from keel.machine import default_threads
from keel.stages.finetune import finetune


def compare_lineage(
    members: Sequence[str],
    *,
    out: str,
    tasks: Sequence[LabelledTask],
    corpus: str | None = None,
    words_corpus: str | None = None,
    budget: str | None = None,
    ways: Sequence[str] = tuple(WAYS),
    task_seeds: int = 3,
    seeds_of: dict[str, int] | None = None,
    sizes: Sequence[int] = (),
    overrides: Sequence[str] = (),
    features_overrides: Sequence[str] = (),
    tuned_overrides: Sequence[str] = (),
    resume: bool = False,
    at_once: int = 1,
    threads: int | None = None,
    device: str = "auto",
    report: Callable[[str], None] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Trains the missing models, runs all tasks, and returns one row of results for each member and way.

    Overrides of a way are `key=value`, or `MEMBER:key=value` for one member; `seeds_of` sets another
    number of seeds for some members. `at_once` runs share the threads."""
    say = report or (lambda _: None)
    plan = LineagePlan(
        [Member.parse(given) for given in members],
        corpus,
        words_corpus,
        budget,
        list(ways),
        task_seeds,
        sorted(set(sizes)),
        list(overrides),
        list(tasks),
        {"features": list(features_overrides), "tuned": list(tuned_overrides)},
        dict(sorted((seeds_of or {}).items())),
        at_once,
    )
    machine = Machine(threads, device, quiet, at_once)
    machine.check()
    _check(plan)
    comparison = LineageComparison(plan, Path(out))
    begin_comparison(comparison.folder, asdict(plan), comparison.rests_on(), resume)
    try:
        run_jobs(comparison.pretrainings(), machine, say, lambda: None)
        run_jobs(comparison.tunings(), machine, say, comparison.write)
        for use in comparison.uses():  # one at a time, because they are timed
            use.measure_cost(replace(machine, at_once=1), say)
    except (Stopped, KeyboardInterrupt):  # the latter while predictions are timed
        raise Stopped("stopped; finished runs are kept. Resume with the same command and --resume") from None
    return comparison.write(finished=True)


@dataclass(frozen=True)
class LineageComparison:
    """The runs of a comparison, and the results of those that are finished."""

    plan: LineagePlan
    folder: Path

    def rests_on(self) -> dict[str, str]:
        members = self.plan.members
        corpora = [_corpus_for(member, self.plan) for member in members if member.recipe]
        return sources(self.plan.tasks, corpora, [member.folder for member in members])

    def model(self, member: Member) -> Path:
        return Path(member.folder) if member.folder else self.folder / member.name / "model"

    def pretrainings(self) -> list[Pretraining]:
        plan = self.plan
        return [
            Pretraining(m.recipe, 1, self.model(m), _corpus_for(m, plan), tuple(plan.overrides), plan.budget)
            for m in plan.members
            if m.recipe
        ]

    def uses(self) -> list[Use]:
        plan = self.plan
        return [
            Use(m.name, way, plan.task(task, way, m.name), str(self.model(m)), self.folder / m.name)
            for way in plan.ways
            for task in plan.tasks
            for m in plan.members
        ]

    def tunings(self) -> list[Finetuning]:
        plan, uses = self.plan, self.uses()
        most = max(plan.seeds(use.member) for use in uses)
        tunings = [use.turn(t) for t in range(1, most + 1) for use in uses if t <= plan.seeds(use.member)]
        return tunings + [use.of_size(size) for size in plan.sizes for use in uses]

    def write(self, finished: bool = False) -> dict[str, Any]:
        """Writes the results of all finished runs to `comparison.json` and the page."""
        runs = []
        for member in self.plan.members:
            tasks: dict[str, Any] = {}
            for use in (one for one in self.uses() if one.member == member.name):
                if found := use.found(self.plan):
                    tasks.setdefault(use.task.name, {})[use.way] = found
            runs.append({"member": member.name, **_figures(self.model(member)), "tasks": tasks})
        rows = _rows(self.plan, runs)
        result = {"out": str(self.folder), "plan": asdict(self.plan), "finished": finished, "rows": rows, "runs": runs}
        write_file(self.folder / RESULTS, json.dumps(result, indent=2))
        write_page(self.folder, self.plan, result)
        return result


_figures = cache(model_figures)  # of models that are finished


@dataclass(frozen=True)
class Use:
    """One member, used in one way, on one task."""

    member: str
    way: str
    task: LabelledTask  # with the settings of this member and way
    model: str
    place: Path

    def turn(self, number: int) -> Finetuning:
        return self._tuning(f"run {number}", str(number), f"training.seed={1000 + number}")

    def of_size(self, size: int) -> Finetuning:
        return self._tuning(f"{size} examples", f"of-{size}", "training.seed=1001", f"training.examples={size}")

    def _tuning(self, said: str, name: str, *changes: str) -> Finetuning:
        title = f"{self.task.name}, {self.way}, {said}: {self.member}"
        return Finetuning(self.model, self.task, changes, self.place / f"{self.task.name}-{self.way}-{name}", title)

    @property
    def cost_file(self) -> Path:
        return self.place / f"{self.task.name}-{self.way}-cost.json"

    def found(self, plan: LineagePlan) -> dict[str, Any]:
        """The finished results: with all examples, by number of examples, and the cost of predictions."""
        wanted = {"all": [self.turn(number) for number in range(1, plan.seeds(self.member) + 1)]}
        wanted |= {str(size): [self.of_size(size)] for size in plan.sizes}
        found: dict[str, Any] = {
            name: [job.result() for job in jobs if job.finished]
            for name, jobs in wanted.items()
            if any(job.finished for job in jobs)
        }
        return found | ({"cost": json.loads(self.cost_file.read_text("utf-8"))} if self.cost_file.is_file() else {})

    def measure_cost(self, machine: Machine, say: Callable[[str], None]) -> None:
        """Measures texts per second and peak memory of a process that predicts the development data. The model is a
        stand-in of the same shape, hardly trained: those of the comparison are not kept."""
        if self.cost_file.is_file():
            return
        say(f"{self.task.name}, {self.way}, cost of predictions: {self.member}")
        kept = self.place / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        given = [*self.task.overrides, f"training.examples={TIMED_EXAMPLES}", "training.epochs=1"]
        task, each = self.task, machine.of_each()
        finetune(self.model, task.kind, train=task.train, dev=task.dev, out=str(kept), overrides=given, **each)
        options = [machine.device, str(machine.threads or default_threads())]
        command = [sys.executable, "-m", "keel.comparing.cost", str(kept), self.task.dev, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        shutil.rmtree(kept)
        if done.returncode:
            said = done.stderr.strip()[-300:]
            raise UserError(f"{self.model}: predictions for {self.task.dev} could not be timed: {said}")
        write_file(self.cost_file, json.dumps(json.loads(done.stdout)))


def _check(plan: LineagePlan) -> None:
    names = [member.name for member in plan.members]
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError("a comparison needs at least two members with different names")
    if not plan.tasks:
        raise UserError("there is no task to compare on: give --task NAME=KIND:TRAIN:DEV")
    if not plan.ways or len(set(plan.ways)) < len(plan.ways):
        raise UserError(f"--ways: give {', '.join(WAYS)}, or both, each once")
    for way in plan.ways:
        if way not in WAYS:
            raise UserError(f"--ways: there is no '{way}'; choose from {', '.join(WAYS)}")
    check_tasks(plan.tasks)
    for way, settings in plan.settings.items():
        for strange in {owner_of(s) for s in settings} - {None, *names}:
            raise UserError(f"--{way}-set {strange}:...: there is no member of that name")
    for name, count in plan.seeds_of.items():
        if name not in names:
            raise UserError(f"--seeds-of {name}=...: there is no member of that name")
        if count < 1:
            raise UserError(f"--seeds-of {name}={count}: must be at least 1")
    check_tasks([plan.task(task, way, name) for task in plan.tasks for way in plan.ways for name in names], same=True)
    for member in plan.members:
        if member.folder:
            load_model(member.folder)
            continue
        assert member.recipe is not None
        if plan.budget is None:
            raise UserError(
                f"{member.name} is a recipe to train: give --budget, such as 15m, or a trained model as NAME=FOLDER"
            )
        recipes.load(member.recipe, [*plan.overrides, f"training.budget={plan.budget}"])
        Corpus.open(Path(_corpus_for(member, plan)))


def _corpus_for(member: Member, plan: LineagePlan) -> str:
    chosen = (plan.words_corpus if member.reads_words else None) or plan.corpus
    if chosen is None:
        raise UserError(f"{member.name} is a recipe to train: give --corpus, or a trained model as NAME=FOLDER")
    return chosen


def _rows(plan: LineagePlan, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each member and way; the best mean over all tasks first."""
    rows = []
    for run in runs:
        for way in plan.ways:
            scores: dict[str, Any] = {}
            for task in plan.tasks:
                found = run["tasks"].get(task.name, {}).get(way)
                if found and found.get("all"):
                    results = found["all"]
                    scores[task.name] = {"figure": results[0]["primary_metric"], **spread(primary_scores(results))}
            means = [scores.get(task.name, {}).get("mean") for task in plan.tasks]
            row = {"member": run["member"], "way": way, "tasks": scores}
            row |= {key: run[key] for key in ("parameters", "tokens", "seconds")}
            row["mean_score"] = None if None in means else sum(means) / len(means)
            row["seeds"] = max((found["count"] for found in scores.values()), default=0)
            rows.append(row)
    return sorted(rows, key=lambda row: -(row["mean_score"] or 0.0))
