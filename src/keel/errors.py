"""Exceptions with a message for the user, rows that are left out, and suggestions for misspelt names.

In: what was found and what to do about it. Out: one line on stderr and exit code 2, never a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

LISTED = 12  # names shown when none is close


class UserError(Exception):
    """An error that the user can fix. The message is one line: where, what was found, what to do next."""


class Stopped(Exception):
    """The run was stopped on request; its work is saved. The message explains how to resume."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row of a file that is left out."""

    file: str
    line: int  # counted from 1; 0 where line numbers mean nothing, as inside one large JSON value
    reason: str  # `kind: detail`

    def __str__(self) -> str:
        return f"{locate(self.file, self.line)}: {self.reason}"


def locate(file: str, line: int) -> str:
    """Where something is: `a.csv, line 3`. A .parquet, and data in memory (`<train>`), have rows instead of lines."""
    if not line:
        return file
    return f"{file}, {'row' if file.endswith(('.parquet', '>')) else 'line'} {line}"


def separate(rows: Iterable[T | Rejected]) -> tuple[list[T], list[Rejected]]:
    """The usable rows and the rejected ones, each in order."""
    usable, rejected = list[T](), list[Rejected]()
    for row in rows:
        if isinstance(row, Rejected):
            rejected.append(row)
        else:
            usable.append(row)
    return usable, rejected


def near(wrong: str, known: Iterable[str], least: float = 0.5) -> str:
    """A suffix for messages about misspelt names: ` Did you mean 'bert-mini'?`; empty if none is similar by `least`."""
    close = difflib.get_close_matches(wrong, sorted(known), n=1, cutoff=least)
    return f" Did you mean '{close[0]}'?" if close else ""


def suggest(wrong: str, known: Iterable[str]) -> str:
    """The same, or a list of the known names."""
    known = sorted(known)
    listed = ", ".join(known[:LISTED]) + (", ..." if len(known) > LISTED else "")
    return near(wrong, known) or (f" Known: {listed}." if known else "")
