"""The page of `keel compare lineage`: scores, costs, labels, and curves.

In: the plan of a comparison and its finished results. Out: `report.html`, rewritten after each run.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from keel.comparing.lineage_plan import TIMED_EXAMPLES, LineagePlan
from keel.comparing.recipes import shown, spread
from keel.report_tables import Table
from keel.reporting.report import write_comparison
from keel.reporting.svg import Series


def write_page(folder: Path, plan: LineagePlan, result: dict[str, Any]) -> None:
    rows, runs = result["rows"], result["runs"]
    names = [task.name for task in plan.tasks]
    table = Table(
        "Members, best first",
        ["member", "used as", *names, "mean", "seeds"],
        [
            [
                row["member"],
                row["way"],
                *(shown(row["tasks"][name]) if name in row["tasks"] else "" for name in names),
                float("nan") if row["mean_score"] is None else row["mean_score"],
                row["seeds"],
            ]
            for row in rows
        ],
        "The primary metric on the development data, mean and standard deviation over the seeds. features: frozen "
        "encoder, a BiLSTM on a learned mix of its layers. tuned: all weights are trained.",
    )
    cost = Table(
        "Cost",
        [
            *("member", "parameters", "training minutes", "tokens seen", "used as", "task"),
            *("task seconds", "predictions/s", "memory MB"),
        ],
        [
            [
                run["member"],
                run["parameters"],
                run["seconds"] / 60,
                run["tokens"],
                way,
                name,
                round(statistics.median(result["seconds"] for result in found[way]["all"])),
                round(found[way]["cost"]["per_second"], 1),
                round(found[way]["cost"]["megabytes"]),
            ]
            for run in runs
            for name, found in run["tasks"].items()
            for way in plan.ways
            if {"cost", "all"} <= found.get(way, {}).keys()
        ],
        "task seconds: fine-tuning on all examples, median over the seeds. Predictions per second and peak memory: a "
        f"fresh process on the development data, with a model of the same shape, fine-tuned on {TIMED_EXAMPLES} "
        "examples only: the models of the table above are not kept. All on this machine.",
    )
    tables = [table, cost, *_label_tables(plan, runs)]
    write_comparison(folder, f"Lineage of {len(plan.members)} members", _charts(plan, runs), tables, _facts(plan))


def _label_tables(plan: LineagePlan, runs: list[dict[str, Any]]) -> list[Table]:
    """F1 of each label, mean over seeds."""
    tables = []
    for task in plan.tasks:
        rows, labels = [], list[str]()
        for run in runs:
            for way in plan.ways:
                results = run["tasks"].get(task.name, {}).get(way, {}).get("all", [])
                found = [r["by_label"] for r in results if r.get("by_label")]
                if found:
                    labels = labels or list(found[0])
                    means = [sum(one.get(name, 0.0) for one in found) / len(found) for name in labels]
                    rows.append([run["member"], way, *means])
        tables += [Table(f"{task.name}: F1 by label", ["member", "used as", *labels], rows)] if rows else []
    return tables


def _charts(plan: LineagePlan, runs: list[dict[str, Any]]) -> list[tuple[str, list[Series], str, str]]:
    charts = []
    for task in plan.tasks:
        for way in plan.ways:
            dots, curves = [], []
            for colour, run in enumerate(runs):
                found = run["tasks"].get(task.name, {}).get(way, {})
                if not found.get("all"):
                    continue
                mean = spread([r[r["primary_metric"]] for r in found["all"] if r[r["primary_metric"]] is not None])[
                    "mean"
                ]
                score = float("nan") if mean is None else mean
                dots.append(Series(run["member"], [(run["seconds"] / 60, score)], "dots", colour))
                points = [(float(size), _score(found[str(size)][0])) for size in plan.sizes if str(size) in found]
                points.append((float(found["all"][0]["examples"]), score))
                curves.append(Series(run["member"], sorted(points), "marks", colour))
            if dots:
                charts.append((f"{task.name}, {way}: score against cost", dots, "training minutes", "score"))
            if curves and plan.sizes:
                charts.append((f"{task.name}, {way}: learning curve", curves, "training examples", "score"))
    return charts


def _score(result: dict[str, Any]) -> float:
    value = result[result["primary_metric"]]
    return float("nan") if value is None else float(value)


def _facts(plan: LineagePlan) -> dict[str, Any]:
    return {
        "corpus": plan.corpus,
        "corpus of words": plan.words_corpus,
        "pretraining time": plan.budget,
        "members": [m.name + (f": {m.folder}" if m.folder else "") for m in plan.members],
        "seeds per task": plan.task_seeds,
        "seeds of single members": [f"{name}: {count}" for name, count in plan.seeds_of.items()] or None,
        "training set sizes": plan.sizes or None,
        "parallel runs": plan.at_once,
        "settings for all": plan.overrides or None,
        **{f"settings for {way}": settings for way, settings in plan.settings.items() if settings and way in plan.ways},
        "tasks": [f"{t.name}: {t.kind} {t.train} -> {t.dev} {' '.join(t.overrides)}".strip() for t in plan.tasks],
    }
