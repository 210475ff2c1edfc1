"""`keel finetune --grid --seeds N`: hyperparameter search, with several seeds per setting.

In: the arguments of a fine-tuning run, values to try, a number of seeds. Out: each run in `runs/`, a table of means and
deviations, and the best run's model in the folder itself.

Notable choices
- Settings are compared by the mean over seeds on the development data. Test data is never used here.
- A run that gives the same answer for every text has learned nothing. It is reported, and stays in the mean, because
  it can happen to anybody who uses the recipe.
- A finished run is not repeated: with --resume, the same command continues where it was stopped.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from keel.errors import Stopped, UserError
from keel.files.folders import MANIFEST, check_free, link_or_copy, write_file
from keel.finetuning.labelled import data_fingerprint
from keel.finetuning.results import RESULT
from keel.stages.finetune import automatic_rate, finetune

BATCH_SIZES = (16, 32)  # Devlin et al. 2018, appendix A.3,
RATE_FACTORS = (0.5, 1, 2)  # and rates around the automatic one, as theirs are around that for BERT-Base
RUNS = "runs"
SEARCH = "search.json"


def recommended(model: str, task: str, **how: Any) -> list[str]:
    """The settings of --grid: `tries` for `search`. Epochs are none of them: the best one of each run is kept. `how`:
    the options of `finetune` that the automatic rate depends on."""
    rate = automatic_rate(model, task, **how)
    rates = ",".join(f"{factor * rate:.2g}" for factor in RATE_FACTORS)
    return [f"training.batch_size={','.join(map(str, BATCH_SIZES))}", f"training.learning_rate={rates}"]


def search(
    model: str,
    task: str,
    *,
    out: str,
    tries: Sequence[str] = (),
    seeds: int = 1,
    overrides: Sequence[str] = (),
    resume: bool = False,
    report: Callable[[str], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Runs all settings with all seeds. `tries`: `key=value,value,...` for each key; `options` go to `finetune`."""
    say = report or (lambda _: None)
    folder = Path(out)
    if (folder / RUNS).exists() and not resume:
        raise UserError(f"{out} already contains runs; add --resume to continue them, or choose another --out")
    if not (folder / RUNS).exists():
        check_free(folder)
    wanted = {given.partition("=")[0]: _values(given) for given in tries}  # of repeated keys, the last counts
    settings = [list(values) for values in product(*wanted.values())]
    rows: list[dict[str, Any]] = []
    for number, setting in enumerate(settings):
        found = []
        for seed in range(1, seeds + 1):
            place = folder / RUNS / f"{number + 1:02d}-seed-{seed}"
            say(f"run {len(rows) * seeds + seed} of {len(settings) * seeds}: {' '.join(setting)} seed {seed}")
            changes = [*overrides, *setting, f"training.seed={seed}"]
            found.append(_one_run(model, task, place, changes, report, options))
        rows.append(_summary(setting, found))
    best = max(rows, key=lambda row: (row["mean"] == row["mean"], row["mean"]))  # NaN is never the best
    _adopt(folder, Path(best["best_run"]))
    result = {"out": out, "primary_metric": best["primary_metric"], "best": best, "settings": rows}
    write_file(folder / SEARCH, json.dumps(result, indent=2))
    return result


def _values(given: str) -> list[str]:
    key, equals, values = given.partition("=")
    if not key or not equals or not values:
        raise UserError(f"--try {given}: expected key=value,value, such as training.learning_rate=5e-5,3e-5")
    return [f"{key}={value}" for value in values.split(",")]


def _one_run(
    model: str,
    task: str,
    place: Path,
    changes: list[str],
    report: Callable[[str], None] | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    """A run's result: read if the run is finished, otherwise started or resumed."""
    if not (place / RESULT).is_file() or not (place / MANIFEST).is_file():
        begun = any((place / "checkpoints").glob("step-*"))
        if not begun:
            shutil.rmtree(place, ignore_errors=True)
        try:
            finetune(model, task, out=str(place), overrides=changes, resume=begun, report=report, **options)
        except Stopped:
            raise Stopped("stopped; finished runs are kept. Resume with the same command and --resume") from None
        shutil.rmtree(place / "checkpoints")  # three times the size of a model; not needed any more
    result: dict[str, Any] = json.loads((place / RESULT).read_text(encoding="utf-8"))
    data = data_fingerprint(model, options["train"], options.get("dev"), options.get("tokenizer"))
    if (result["settings"], result["data"]) != (changes, data):
        raise UserError(f"{place} contains a run with other settings or data; choose another --out")
    return {**result, "run": str(place)}


def _summary(setting: list[str], found: list[dict[str, Any]]) -> dict[str, Any]:
    primary_metric = found[0]["primary_metric"]
    scores = [run[primary_metric] if run[primary_metric] is not None else float("nan") for run in found]
    best = max(found, key=lambda run: (run[primary_metric] is not None, run[primary_metric] or 0.0))
    return {
        "settings": " ".join(setting) or "recipe defaults",
        "primary_metric": primary_metric,
        "mean": statistics.fmean(scores),
        "deviation": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "scores": scores,
        "learned_nothing": sum(run["learned_nothing"] for run in found),
        "seconds": round(sum(run["seconds"] for run in found), 1),
        "best_run": best["run"],
    }


def _adopt(folder: Path, run: Path) -> None:
    """Makes the folder itself the best run's model folder; its files are linked, not copied."""
    for path in run.iterdir():
        if path.is_file():
            link_or_copy(path, folder / path.name)
