"""`keel compare pretraining`: several recipes, the same corpus, the same time or number of tokens, the same tasks.

In: recipes, a corpus, a budget for each, seeds, and labelled tasks. Out: a folder with every pretrained model, every
fine-tuning result, `comparison.json`, and a page that ranks and plots them.

Notable choices
- Recipes alternate within a seed, so that a machine that slows down slows all of them. All are pretrained before any is
  fine-tuned, because only pretraining has a time budget; and all are fine-tuned once before any is a second time.
- Finished runs are not repeated: the same command with --resume continues, also within a run, and may add seeds.
- Recipes are ranked by the mean of their tasks' primary metrics, each a mean over seeds. Held-out losses are shown but
  not used for ranking: they measure different things (masked tokens, masked words, the next token). With an
  `eval_recipe`, all recipes that have its objectives are evaluated on the same rows with the same masks.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from keel import recipe as recipes
from keel.comparing.jobs import Finetuning, Machine, Pretraining, model_figures, run_jobs
from keel.comparing.tasks import LabelledTask, check_tasks
from keel.corpus.store import Corpus
from keel.errors import Stopped, UserError
from keel.files.folders import check_free, sha256, write_file
from keel.finetuning.labelled import files_of, fingerprint
from keel.pretraining.data import find_eval_recipe
from keel.report_tables import Table
from keel.reporting.report import write_comparison
from keel.reporting.svg import Series

PLAN, RESULTS, MODEL = "plan.json", "comparison.json", "model"
SOURCES = "sources"  # the plan's key for the fingerprints of its data and models
GROWS = ("seeds", "task_seeds", "seeds_of", "sizes", "ways")


@dataclass(frozen=True)
class ComparisonPlan:
    """Everything that determines the results of a comparison."""

    recipes: list[str]
    corpus: str
    budget: str | None
    tokens: int | None
    seeds: int
    task_seeds: int
    overrides: list[str] = field(default_factory=list)
    tasks: list[LabelledTask] = field(default_factory=list)
    at_once: int = 1  # parallel runs, which share the threads


def compare_pretraining(
    names: Sequence[str],
    *,
    corpus: str,
    out: str,
    budget: str | None = None,
    tokens: int | None = None,
    seeds: int = 1,
    tasks: Sequence[LabelledTask] = (),
    task_seeds: int = 1,
    eval_recipe: str | None = None,
    overrides: Sequence[str] = (),
    resume: bool = False,
    at_once: int = 1,
    threads: int | None = None,
    device: str = "auto",
    report: Callable[[str], None] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Trains and evaluates all recipes, and returns one row of results for each, best first.

    `eval_recipe` is a recipe whose held-out rows and masks are used for all: the losses can then be compared.
    `at_once` runs share the threads.
    """
    say = report or (lambda _: None)
    overrides = [*overrides, *([f"data.eval_recipe={eval_recipe}"] if eval_recipe else [])]
    plan = ComparisonPlan(list(names), corpus, budget, tokens, seeds, task_seeds, list(overrides), list(tasks), at_once)
    machine = Machine(threads, device, quiet, at_once)
    machine.check()
    _check(plan)
    folder = Path(out)
    begin_comparison(folder, asdict(plan), sources(plan.tasks, [plan.corpus]), resume)
    pretrainings = [
        Pretraining(name, seed, folder / f"{_slug(name)}-seed-{seed}" / MODEL, corpus, tuple(overrides), budget, tokens)
        for seed in range(1, seeds + 1)
        for name in names
    ]
    turns = range(1, task_seeds + 1)
    tunings = [_tuning(made, task, turn) for turn in turns for made in pretrainings for task in tasks]
    figures = cache(model_figures)

    def keep(finished: bool = False) -> dict[str, Any]:
        """Writes and returns the results of all finished runs."""
        runs = []
        for made in (one for one in pretrainings if one.finished):
            mine = {task.name: [_tuning(made, task, turn) for turn in turns] for task in tasks}
            results = {name: [one.result() for one in all_of if one.finished] for name, all_of in mine.items()}
            run = {"recipe": made.recipe, "seed": made.seed, **figures(made.model)}
            runs.append(run | {"tasks": {name: found for name, found in results.items() if found}})
        result = {"out": out, "plan": asdict(plan), "finished": finished, "recipes": _rank(plan, runs), "runs": runs}
        write_file(folder / RESULTS, json.dumps(result, indent=2))
        _write_page(folder, plan, result)
        return result

    try:
        run_jobs(pretrainings, machine, say, keep)
        run_jobs(tunings, machine, say, keep)
    except Stopped:
        raise Stopped("stopped; finished runs are kept. Resume with the same command and --resume") from None
    return keep(finished=True)


def _tuning(made: Pretraining, task: LabelledTask, turn: int) -> Finetuning:
    title = f"{task.name}, run {turn}: {made.recipe}, seed {made.seed}"
    changes = (f"training.seed={1000 * made.seed + turn}",)
    return Finetuning(str(made.model), task, changes, made.model.parent / f"{task.name}-{turn}", title)


def _check(plan: ComparisonPlan) -> None:
    if len(plan.recipes) < 2 or len(set(plan.recipes)) < len(plan.recipes):
        raise UserError("a comparison needs at least two different recipes")
    if (plan.budget is None) == (plan.tokens is None):
        raise UserError("give one budget for all recipes: --budget 15m, or --tokens 20000000")
    if len({_slug(name) for name in plan.recipes}) < len(plan.recipes):
        raise UserError("two recipe files have the same name; rename one, because results are stored by name")
    Corpus.open(Path(plan.corpus))
    for name in plan.recipes:
        given = [f"training.budget={plan.budget}"] if plan.budget else []
        find_eval_recipe(recipes.load(name, [*plan.overrides, *given]))
    check_tasks(plan.tasks)


def sources(tasks: Sequence[LabelledTask], corpora: Sequence[str], models: Sequence[str | None] = ()) -> dict[str, str]:
    """Fingerprints, by path, of the data and models of a comparison: the tasks' files, corpora and trained models."""
    files = {str(path) for task in tasks for given in (task.train, task.dev) for path in files_of(given)}
    found = {path: sha256(Path(path)) for path in sorted(files)}
    found |= {path: Corpus.open(Path(path), verify=False).fingerprint for path in set(corpora)}
    return found | {folder: fingerprint(folder) for folder in models if folder}


def begin_comparison(folder: Path, plan: dict[str, Any], rests_on: dict[str, str], resume: bool) -> None:
    """Creates the folder, or checks that it contains the same comparison; seeds, sizes and ways may differ."""
    path, content = folder / PLAN, json.dumps({**plan, SOURCES: rests_on}, indent=2)
    if not path.is_file():
        if resume:
            raise UserError(f"{folder}: there is no comparison to resume; start without --resume")
        check_free(folder)
    elif resume:
        _check_same(folder, path.read_text(encoding="utf-8"), content)
    else:
        raise UserError(f"{folder} already contains a comparison; add --resume to continue it")
    folder.mkdir(parents=True, exist_ok=True)
    write_file(path, content)


def _check_same(folder: Path, before: str, now: str) -> None:
    """Seeds, sizes and ways may be added; everything else must be the same."""
    try:
        then, plan = json.loads(before), json.loads(now)
    except ValueError:
        raise UserError(f"{folder / PLAN}: damaged; choose another --out") from None
    if any(then.get(key) != value for key, value in plan.items() if key not in (*GROWS, SOURCES)):
        raise UserError(f"{folder} contains a comparison of other members, data or settings; choose another --out")
    for source, known in then.get(SOURCES, {}).items():
        if plan[SOURCES].get(source) != known:
            raise UserError(
                f"{source} has changed since the comparison in {folder} began; results on old and new data cannot be "
                "combined. Restore it, or choose another --out"
            )


def _slug(name: str) -> str:
    return Path(name).stem


def _rank(plan: ComparisonPlan, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each recipe: means and deviations over seeds; the best mean over all tasks first."""
    rows = []
    for name in plan.recipes:
        mine = [run for run in runs if run["recipe"] == name]
        if not mine:
            continue
        row: dict[str, Any] = {"recipe": name, "seeds": len(mine), "parameters": mine[0]["parameters"]}
        for key in ("tokens", "seconds", "tokens_per_second"):
            row[key] = statistics.fmean(run[key] for run in mine)
        row["held_out"] = {
            key: spread([run["held_out"][key] for run in mine]) for key in mine[0]["held_out"] if key.endswith("loss")
        }
        row["tasks"] = {}
        for task in plan.tasks:
            results = [result for run in mine for result in run["tasks"].get(task.name, [])]
            if not results:  # not finished yet
                continue
            scores = [r[r["primary_metric"]] for r in results if r[r["primary_metric"]] is not None]
            nothing = sum(r["learned_nothing"] for r in results)
            row["tasks"][task.name] = {"figure": results[0]["primary_metric"], "learned_nothing": nothing} | spread(
                scores
            )
        means = [row["tasks"].get(task.name, {}).get("mean") for task in plan.tasks]
        row["mean_score"] = statistics.fmean(means) if means and None not in means else None
        rows.append(row)
    return sorted(rows, key=lambda row: -(row["mean_score"] or 0.0))  # rows without a mean come last


def primary_scores(results: Sequence[dict[str, Any]]) -> list[float]:
    """The primary metrics, without those that are undefined."""
    return [result[result["primary_metric"]] for result in results if result[result["primary_metric"]] is not None]


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation and count; the mean of no values is None."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values) if values else None, "deviation": deviation, "count": len(values)}


def _write_page(folder: Path, plan: ComparisonPlan, result: dict[str, Any]) -> None:
    rows = result["recipes"]
    losses = list(dict.fromkeys(key for row in rows for key in row["held_out"]))
    spent = plan.budget or f"{plan.tokens:,} tokens"
    facts = {
        "corpus": plan.corpus,
        "budget per recipe": spent,
        "seeds": plan.seeds,
        "seeds per task": plan.task_seeds,
        "parallel runs": plan.at_once,
        "settings for all": plan.overrides or None,
        "tasks": [f"{t.name}: {t.kind} {t.train} -> {t.dev} {' '.join(t.overrides)}".strip() for t in plan.tasks]
        or None,
    }
    charts = [*_loss_charts(plan, result["runs"], losses), *_score_charts(plan, rows)]
    tables = [_score_table(plan, rows, losses), _cost_table(rows)]
    write_comparison(folder, f"{len(plan.recipes)} recipes, {spent} each", charts, tables, facts)


def _score_table(plan: ComparisonPlan, rows: list[dict[str, Any]], losses: list[str]) -> Table:
    return Table(
        "Recipes, best first" if plan.tasks else "Recipes",
        ["recipe", *(f"{t.name}" for t in plan.tasks), *(["mean"] if plan.tasks else []), *losses],
        [
            [
                row["recipe"],
                *(shown(row["tasks"][task.name]) if task.name in row["tasks"] else "" for task in plan.tasks),
                *([_or_nan(row["mean_score"])] if plan.tasks else []),
                *(shown(row["held_out"][key]) if key in row["held_out"] else "" for key in losses),
            ]
            for row in rows
        ],
        "Tasks: the primary metric on the development data, mean and standard deviation over all runs. Losses of "
        "different objectives cannot be compared, nor losses with different masks, unless --eval-recipe is given.",
    )


def _cost_table(rows: list[dict[str, Any]]) -> Table:
    columns = ["recipe", "parameters", "tokens/s", "tokens seen", "minutes"]
    return Table(
        "Cost",
        columns,
        [
            [
                row["recipe"],
                row["parameters"],
                round(row["tokens_per_second"]),
                round(row["tokens"]),
                row["seconds"] / 60,
            ]
            for row in rows
        ],
    )


def _loss_charts(plan: ComparisonPlan, runs: list[dict[str, Any]], losses: list[str]) -> list[Any]:
    """The held-out losses of the first seed over time."""
    charts = []
    for key in losses:
        first = [run for run in runs if run["seed"] == 1 and key in run["held_out"]]
        curves = [(run["recipe"], [(x, y[key]) for x, y in run["curve"] if key in y]) for run in first]
        lines = [Series(recipe, curve, "line", _colour(plan, recipe)) for recipe, curve in curves]
        charts += [(f"Held-out {key}", lines, "minutes", "nats")] if lines else []
    return charts


def _score_charts(plan: ComparisonPlan, rows: list[dict[str, Any]]) -> list[Any]:
    """The tasks' scores by tokens seen."""
    charts = []
    for task in plan.tasks:
        done = [(row, row["tasks"][task.name]) for row in rows if task.name in row["tasks"]]
        dots = [
            Series(row["recipe"], [(row["tokens"] / 1e6, _or_nan(score["mean"]))], "dots", _colour(plan, row["recipe"]))
            for row, score in done
        ]
        charts += [(f"{task.name}: {done[0][1]['figure']}", dots, "million tokens seen", "score")] if dots else []
    return charts


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _colour(plan: ComparisonPlan, name: str) -> int:
    return plan.recipes.index(name)


def shown(spread: dict[str, Any]) -> str:
    """A mean with its standard deviation, formatted."""
    if spread["mean"] is None:
        return "not a number"
    mean = f"{spread['mean']:.4f}"
    return f"{mean} ± {spread['deviation']:.4f}" if spread["count"] > 1 else mean
