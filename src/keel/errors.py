"""Exceptions with a message for the user, and suggestions for misspelt names.

In: what was found and what to do about it. Out: one line on stderr and exit code 2, never a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED = 12  # names shown when none is close


class UserError(Exception):
    """An error that the user can fix. The message is one line: where, what was found, what to do next."""


class Stopped(Exception):
    """The run was stopped on request; its work is saved. The message explains how to resume."""


def near(wrong: str, known: Iterable[str]) -> str:
    """A suffix for messages about misspelt names: ` Did you mean 'bert-mini'?`, or nothing."""
    close = difflib.get_close_matches(wrong, sorted(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def suggest(wrong: str, known: Iterable[str]) -> str:
    """The same, or a list of the known names."""
    known = sorted(known)
    listed = ", ".join(known[:LISTED]) + (", ..." if len(known) > LISTED else "")
    return near(wrong, known) or (f" Known: {listed}." if known else "")
