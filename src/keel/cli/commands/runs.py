"""`keel runs`: list the runs below a folder, or compare some of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import clean

Folders = Annotated[
    list[str] | None,
    typer.Argument(metavar="DIR", help="Folders with runs; two or more folders of runs are compared."),
]


def runs(folders: Folders = None, as_json: common.Json = False) -> None:
    """Lists the runs in and below some folders (default: the current one and its runs/), the last one first. Compares
    them instead if all folders are those of single runs."""
    from keel.stages.runs import compare_runs, is_run, list_runs

    given = folders or []
    if len(given) > 1 and all(map(is_run, given)):
        compared = compare_runs(given)
        common.print_json(compared) if as_json else _print_comparison(compared)
        return
    found = list_runs(given)
    common.print_json({"runs": found}) if as_json else _print_runs(found)


def _print_runs(found: list[dict[str, Any]]) -> None:
    if not found:
        typer.echo("no runs here; give the folder that contains them")
        return
    columns = ("run", "kind", "recipe", "state", "step", "figure", "", "time", "changed")
    rows = [
        (run["folder"], run["kind"], run["name"], run["state"], _progress(run), *_figure(run), *_times(run))
        for run in found
    ]
    common.print_table("", columns, rows, right=(4, 6, 7))
    for run in found:
        if run["problem"]:
            typer.echo(clean(run["problem"]))
        if run["resume"]:
            typer.echo(clean(f"{run['folder']} can be resumed:"))
            typer.echo(clean(f"  {run['resume']}"))


def _print_comparison(compared: dict[str, Any]) -> None:
    columns = ("", *(run["folder"] for run in compared["runs"]))
    right = range(1, len(columns))
    common.print_table("settings that differ", columns, [_row(row) for row in compared["settings"]])
    common.print_table("figures", columns, [_row(row) for row in compared["figures"]], right=right)
    facts = [("state", *(run["state"] for run in compared["runs"]))]
    facts += [(key, *(_cell(run[key]) for run in compared["runs"])) for key in ("step", "tokens")]
    facts.append(("time", *(_times(run)[0] for run in compared["runs"])))
    common.print_table("runs", columns, [*facts, *(_row(row) for row in compared["circumstances"])], right=right)
    same = {True: "the same", False: "not the same: figures cannot be compared directly", None: "not known"}
    what = "data"
    if all(run["kind"] != "pretraining" for run in compared["runs"]):  # their fingerprint covers both
        what = "data and starting model"
    typer.echo(f"{what}: {same[compared['same_data']]}")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    return (row["name"], *map(_cell, row["values"]))


def _cell(value: Any) -> str:
    return "-" if value is None else common.number(value)


def _progress(run: dict[str, Any]) -> str:
    of = f" of {common.number(run['planned'])}" if run["planned"] is not None and run["state"] != "finished" else ""
    return "" if run["step"] is None else f"{run['step']:,}{of}"


def _figure(run: dict[str, Any]) -> tuple[str, str]:
    notes = [*(["training"] if run["on_training_data"] else []), *(["plateau"] if run["plateau"] else [])]
    name = run["figure"] + (f" ({', '.join(notes)})" if notes else "")
    return name, "" if run["value"] is None else f"{run['value']:.4f}"


def _times(run: dict[str, Any]) -> tuple[str, str]:
    from keel.training.progress import clock

    return "" if run["seconds"] is None else clock(run["seconds"]), run["when"].replace("T", " ")[5:16]


COMMAND = common.Command(
    runs,
    help="List the runs below a folder, or compare some.",
    order=165,
    examples=["keel runs", "keel runs models/ --json", "keel runs first-model second-model"],
)
