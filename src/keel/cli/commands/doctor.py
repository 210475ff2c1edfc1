"""`keel doctor`: check this machine."""

from __future__ import annotations

import typer

from keel.cli import common
from keel.console import clean

SIGNS = {"ok": "ok", "note": "note", "warn": "WARN"}


def doctor(as_json: common.Json = False) -> None:
    """Checks what training depends on: cores, threads, memory, disk, GPU, bf16 support and speed, optional packages."""
    from keel.stages.doctor import examine

    result = examine()
    if as_json:
        common.print_json(result)
        return
    rows = [(SIGNS[c["verdict"]], c["name"], c["value"]) for c in result["checks"]]
    common.print_table("", ("", "check", "found"), rows)
    for check in result["checks"]:
        if check["advice"]:
            typer.echo(clean(f"{SIGNS[check['verdict']]}: {check['name']}: {check['advice']}"))


COMMAND = common.Command(
    doctor,
    help="Check this machine: CPU, memory, GPU, bf16.",
    order=10,
    examples=["keel doctor", "keel doctor --json"],
)
