"""`keel doctor`: what this machine can do, and its traps."""

from __future__ import annotations

import typer

from keel.cli import common

SIGNS = {"ok": "ok", "note": "note", "warn": "WARN"}


def doctor(as_json: common.Json = False) -> None:
    """Checks what decides speed here: cores, threads, memory, number formats and their traps, optional packages."""
    from keel.stages.doctor import examine

    result = examine()
    if as_json:
        common.print_json(result)
        return
    rows = [(SIGNS[c["verdict"]], c["name"], c["value"]) for c in result["checks"]]
    common.print_table("", ("", "what", "found"), rows)
    for check in result["checks"]:
        if check["advice"]:
            typer.echo(common.clean(f"{SIGNS[check['verdict']]}: {check['name']}: {check['advice']}"))


COMMAND = common.Command(
    doctor,
    help="Check what this machine can do.",
    order=10,
    examples=["keel doctor", "keel doctor --json"],
)
