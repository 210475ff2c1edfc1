"""`keel runs`: the runs below a folder, and what differs between some of them.

In: folders. Out: for each run what it is, how far it got, its last figures and how to resume it; for several runs, the
settings, figures and circumstances that differ.

Notable choices
- Only small files are read (recipe, log, manifest, result, the state of the newest checkpoint), and torch is not
  imported: there is an answer in a fraction of a second.
- A run is known by its files, whatever its folder is called. Links are not followed, hidden folders not entered. The
  runs inside a comparison or a search are listed if it is given itself.
- A folder whose files cannot be read is listed with the reason; it never hides the others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from keel.console import shell_command
from keel.errors import UserError
from keel.files.folders import MANIFEST, read_json, read_manifest
from keel.files.locks import is_locked
from keel.files.yaml import read_yaml

LEVELS = 3  # folders below the given one
RECIPE, METRICS, CHECKPOINTS, RESULT = "recipe.yaml", "metrics.jsonl", "checkpoints", "result.json"
RUN = "run.json"  # in a checkpoint
STEP = re.compile(r"step-(\d{8})(-final)?")  # as in training/run_folder.py, which imports torch
PLAN, COMPARISON, SEARCH = "plan.json", "comparison.json", "search.json"
NOT_KEELS = (KeyError, TypeError, ValueError, AttributeError, IndexError)  # JSON of another shape than Keel's
CIRCUMSTANCES = ("threads", "precision", "keel_version", "torch")
NOT_SETTINGS = ("name", "description", "plugins")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run, a search or a comparison, as its folder tells."""

    folder: str
    kind: str  # pretraining, fine-tuning, search, comparison, or unknown
    name: str = ""  # of the recipe; of a comparison, what it compares
    state: str = "unreadable"  # finished, running, stopped or unreadable
    step: int | None = None
    planned: int | str | None = None  # steps, or the budget
    figure: str = ""  # the name of the most important of the figures
    value: float | None = None
    on_training_data: bool = False  # there is no held-out figure
    plateau: bool = False
    figures: dict[str, float] = field(default_factory=dict)
    tokens: int | None = None
    seconds: float | None = None
    when: str = ""  # of the last change, ISO 8601
    data: str | None = None  # fingerprint
    resume: str | None = None  # the command that continues it
    problem: str = ""


def list_runs(folders: Sequence[str] = (), levels: int = LEVELS) -> list[dict[str, Any]]:
    """The runs in and below some folders, the last one first. Default: the current folder and its `runs/`."""
    given = [Path(folder) for folder in folders] or [Path(), *([Path("runs")] if Path("runs").is_dir() else [])]
    for folder in given:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; give one that contains runs, or none for the current folder")
    found = {path.resolve(): (path, read) for folder in given for path, read in _search(folder, levels, given=True)}
    runs = [_described(path, read) for path, read in found.values()]
    return [asdict(run) for run in sorted(runs, key=lambda run: (run.when, run.folder), reverse=True)]


def is_run(folder: str) -> bool:
    """Whether a folder is that of a single run, which can be compared with others."""
    return Path(folder).is_dir() and _kind({path.name for path in Path(folder).iterdir()}) in (_read_run, _read_search)


def compare_runs(folders: Sequence[str]) -> dict[str, Any]:
    """The settings that differ between runs, their figures, and whether their data are the same.

    Values are in the order of the folders; None: a run does not have this setting or figure."""
    for folder in folders:
        if not is_run(folder):
            raise UserError(f"{folder}: not the folder of a run; `keel runs` lists those below the current folder")
    runs = [_read_run(Path(folder)) for folder in folders]
    settings = [_flat(read_yaml(Path(folder) / RECIPE)) for folder in folders]
    facts = [_facts(Path(folder)) for folder in folders]
    data = [run.data for run in runs]
    return {
        "runs": [asdict(run) for run in runs],
        "settings": _side_by_side(settings, _differ),
        "figures": _side_by_side([run.figures for run in runs], lambda values: True),
        "circumstances": _side_by_side([{key: fact.get(key) for key in CIRCUMSTANCES} for fact in facts], _differ),
        "same_data": None if None in data else len(set(data)) == 1,
    }


# ---------------------------------------------------------------------------------------------------------------------
# Finding


def _search(folder: Path, levels: int, given: bool = False) -> Iterator[tuple[Path, Callable[[Path], Run]]]:
    """The runs in a folder and below, each with the function that reads it."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # of another user, or gone in the meantime
        return
    read = _kind({entry.name for entry in entries})
    if read:
        yield folder, read
    if read is _read_run or (read and not given) or levels == 0:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _search(folder / entry.name, levels - 1)


def _kind(names: set[str]) -> Callable[[Path], Run] | None:
    if {PLAN, COMPARISON} <= names:
        return _read_comparison
    if {SEARCH, RECIPE} <= names:
        return _read_search
    return _read_run if len(names & {RECIPE, METRICS, CHECKPOINTS}) > 1 else None


def _described(folder: Path, read: Callable[[Path], Run]) -> Run:
    try:
        return read(folder)
    except (UserError, OSError, *NOT_KEELS) as error:
        known = isinstance(error, UserError | OSError)
        problem = str(error) if known else f"{folder}: its files are not as Keel writes them ({error})"
        return Run(folder=str(folder), kind="unknown", when=_when(folder), problem=problem)


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def _read_run(folder: Path) -> Run:
    recipe = read_yaml(folder / RECIPE)
    of_task = "task" in recipe
    last, evaluation = _last_entries(folder / METRICS)
    figures = {name: value for name, value in evaluation.items() if "." in name}
    training = {name: value for name, value in last.items() if name.endswith(".loss")}
    figure = next((name for name in figures if of_task or name.endswith(".loss")), "")
    result = read_json(folder / RESULT) if of_task and (folder / RESULT).is_file() else {}
    if result:  # of the model that was kept, not of the last one
        kind = recipe["task"]["kind"]
        figure = f"{kind}.{result['primary_metric']}"
        figures = {name: result.get(name.removeprefix(f"{kind}."), value) for name, value in figures.items()}
    newest = _newest_checkpoint(folder)
    state, resume = _state(folder, newest)
    step = last.get("step")
    if state == "stopped":
        step = int(newest.name[5:13]) if newest else 0
    settings = recipe["training"]
    shown = figures if figure else training
    name = figure or next(iter(training), "")
    return Run(
        folder=str(folder),
        kind="fine-tuning" if of_task else "pretraining",
        name=str(recipe["name"]),
        state=state,
        step=step,
        planned=settings.get("budget") or settings.get("steps"),
        figure=name,
        value=shown.get(name),
        on_training_data=not figure and bool(name),
        plateau=bool(evaluation.get("plateau")),
        figures=figures,
        tokens=last.get("tokens"),
        seconds=last.get("elapsed"),
        when=_when(folder / METRICS, folder),
        data=_facts(folder).get("data"),
        resume=resume,
    )


def _read_search(folder: Path) -> Run:
    """A search, whose folder is that of its best run, too."""
    found = read_json(folder / SEARCH)
    best = found["best"]
    return replace(
        _read_run(folder),
        kind="search",
        name=f"{len(found['settings'])} settings, best: {best['settings']}",
        state="finished",
        value=best["mean"],
        seconds=sum(row["seconds"] for row in found["settings"]),
        when=_when(folder / SEARCH),
        resume=None,
    )


def _read_comparison(folder: Path) -> Run:
    plan, found = read_json(folder / PLAN), read_json(folder / COMPARISON)
    rows = found.get("recipes") or found.get("rows") or []
    of_tasks = bool(rows) and rows[0]["mean_score"] is not None
    complete = found.get("finished") and all(plan.get(key) == value for key, value in found["plan"].items())
    running = any(is_locked(path) for path, _ in _search(folder, LEVELS, given=True))
    names = plan.get("recipes") or [member["name"] for member in plan["members"]]
    return Run(
        folder=str(folder),
        kind="comparison",
        name=", ".join(names),
        state="running" if running else "finished" if complete else "stopped",
        figure=f"mean score of {rows[0].get('recipe') or rows[0].get('member')}" if of_tasks else "",
        value=rows[0]["mean_score"] if of_tasks else None,
        seconds=sum(run["seconds"] for run in found["runs"]),
        when=_when(folder / COMPARISON),
        resume=None if running or complete else "the command that began it, with --resume",
    )


def _state(folder: Path, newest: Path | None) -> tuple[str, str | None]:
    """What a run is doing, and the command that continues it."""
    if is_locked(folder):
        return "running", None
    manifest = folder / MANIFEST
    if manifest.is_file():
        size, _ = read_manifest(folder)["files"].get(METRICS, (None, ""))
        same_log = (folder / METRICS).is_file() and size == (folder / METRICS).stat().st_size
        if newest is None or same_log or newest.stat().st_mtime <= manifest.stat().st_mtime:
            return "finished", None
    if newest is None:
        return "stopped", "the command that began it: there is no checkpoint yet"
    saved = read_json(newest / RUN).get("resume")
    return "stopped", _command(folder, saved) if saved else "the command that began it, with --resume"


def _command(folder: Path, saved: Mapping[str, Any]) -> str:
    """The command that resumes a run, to be given where we are: its paths may be relative."""
    command, place = str(saved["command"]), saved["from"]
    there = os.path.normpath(Path(os.path.realpath(folder)) / place) if place else None
    if there is None or there == os.path.realpath(Path.cwd()):
        return command
    return f"{shell_command(['cd', there])} && {command}"


def _newest_checkpoint(folder: Path) -> Path | None:
    saved = (path for path in (folder / CHECKPOINTS).glob("step-*") if STEP.fullmatch(path.name))
    return max((path for path in saved if (path / RUN).is_file()), default=None)


def _facts(folder: Path) -> Mapping[str, Any]:
    """What the run recorded about itself: data, threads, versions."""
    newest = _newest_checkpoint(folder)
    facts = read_json(newest / RUN) if newest else None
    if facts is None and (folder / MANIFEST).is_file():
        facts = read_manifest(folder)["made_by"]
    return facts if isinstance(facts, Mapping) else {}


def _last_entries(metrics: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last entry of a log, and the last evaluation. Half of a line, left by a crash, is skipped."""
    if not metrics.is_file():
        return {}, {}
    lines = metrics.read_bytes().splitlines()
    last: dict[str, Any] = {}
    for line in reversed(lines):
        if last and b'"evaluation"' not in line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        last = last or entry
        if entry["kind"] == "evaluation":
            return last, entry
    return last, {}


def _when(*paths: Path) -> str:
    """The time of the last change, of the first path that exists."""
    stamps = (path.stat().st_mtime for path in paths if path.exists())
    return next((datetime.fromtimestamp(stamp).astimezone().isoformat(timespec="seconds") for stamp in stamps), "")


# ---------------------------------------------------------------------------------------------------------------------
# Comparing


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`, without names and descriptions."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{prefix}{key}"
        if name not in NOT_SETTINGS:
            found |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values)


def _side_by_side(columns: Sequence[Mapping[str, Any]], kept: Callable[[Sequence[Any]], bool]) -> list[dict[str, Any]]:
    """One row for each key, with the values of all columns, if they are kept."""
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = ((key, [column.get(key) for column in columns]) for key in keys)
    return [{"name": key, "values": values} for key, values in rows if kept(values)]
