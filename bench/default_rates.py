"""Is the default learning rate a good one? Fine-tunes models on tasks with the default and with a grid of rates.

    python bench/default_rates.py --model mini=my-model --model minilm=DIR --task mood=classify:train.tsv:dev.tsv \\
        --task names=tag:train.conll:dev.conll --rates 2e-4,5e-4,1e-3 --seeds 3 --examples 1000 --out rates.jsonl

Each run is one JSON line: model, task, rate (null: the default), seed, the score of the best epoch and of the last.
Runs that are already in the file are not repeated. `--show` prints the table of a file: for each model and task the
default's mean, the best mean of the grid, and what the best checkpoint gains over the last one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from keel.comparing.tasks import LabelledTask
from keel.stages.finetune import finetune


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", action="append", default=[], help="NAME=FOLDER")
    options.add_argument("--task", action="append", default=[], help="NAME=KIND:TRAIN:DEV")
    options.add_argument("--task-set", action="append", default=[], help="[NAME:]KEY=VALUE")
    options.add_argument("--rates", default="", help="comma-separated; the default is always run")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--examples", type=int, help="of each training file")
    options.add_argument("--threads", type=int, default=None)
    options.add_argument("--out", required=True)
    options.add_argument("--show", action="store_true", help="only print the table")
    given = options.parse_args()
    path = Path(given.out)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if given.show:
        show(done)
        return
    known = {(run["model"], run["task"], run["rate"], run["seed"]) for run in done}
    tasks = [LabelledTask.parse(task, given.task_set) for task in given.task]
    rates = [None, *(float(rate) for rate in given.rates.split(",") if rate)]
    for seed in range(1, given.seeds + 1):
        for name, _, folder in (model.partition("=") for model in given.model):
            for task in tasks:
                for rate in rates:
                    if (name, task.name, rate, seed) in known:
                        continue
                    found = run(folder, task, rate, seed, given.examples, given.threads)
                    line = {"model": name, "task": task.name, "rate": rate, "seed": seed, **found}
                    with path.open("a") as file:
                        file.write(json.dumps(line) + "\n")


def run(
    model: str, task: LabelledTask, rate: float | None, seed: int, examples: int | None, threads: int | None
) -> dict[str, Any]:
    changes = [*task.overrides, f"training.seed={seed}"]
    changes += [f"training.learning_rate={rate}"] if rate else []
    changes += [f"training.examples={examples}"] if examples else []
    folder = Path(tempfile.mkdtemp())
    try:
        result = finetune(
            model,
            task.kind,
            train=task.train,
            dev=task.dev,
            out=str(folder / "run"),
            overrides=changes,
            threads=threads,
            quiet=True,
        )
        lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        used = max((line["learning_rate"] for line in lines if "learning_rate" in line), default=None)
        key = f"{task.kind}.{result['primary_metric']}"
        last = [line[key] for line in lines if line["kind"] == "evaluation"][-1]
    finally:
        shutil.rmtree(folder)
    kept = {"score": result[result["primary_metric"]], "last": last, "highest_rate": used}
    return kept | {key: result[key] for key in ("seconds", "steps", "best_step", "learned_nothing")}


def show(runs: list[dict[str, Any]]) -> None:
    scores: dict[tuple[str, str], dict[float | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in runs:
        scores[one["model"], one["task"]][one["rate"]].append(one["score"])
        if one["rate"] is None:
            gains[one["model"], one["task"]].append(one["score"] - one["last"])
    print("| model | task | default | best of the grid | at rate | seeds | difference | best minus last checkpoint |")
    print("|---|---|---|---|---|---|---|---|")
    for (model, task), by_rate in scores.items():
        means = {rate: statistics.fmean(found) for rate, found in by_rate.items() if rate is not None}
        default = statistics.fmean(by_rate[None]) if None in by_rate else float("nan")
        best = max(means, key=lambda rate: means[rate]) if means else None
        top = means[best] if best is not None else float("nan")
        gain = statistics.fmean(gains[model, task]) if gains[model, task] else float("nan")
        print(
            f"| {model} | {task} | {default:.3f} | {top:.3f} | {best} | {len(by_rate[best]) if best else 0} "
            f"| {default - top:+.3f} | {gain:+.3f} |"
        )


if __name__ == "__main__":
    main()
