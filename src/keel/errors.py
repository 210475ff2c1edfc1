"""What a user is told when something cannot be done.

In: what was found and what to do about it. Out: one line on stderr and exit code 2, never a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED = 12  # names shown when none is close


class UserError(Exception):
    """Something the user can cure. The message is one line: where, what was found, what to do next."""


class Stopped(Exception):
    """The run was asked to stop; its work is saved. The message says how to go on."""


def near(wrong: str, known: Iterable[str]) -> str:
    """A tail for messages about misspelt names: ` Did you mean 'bert-mini'?`, or nothing."""
    close = difflib.get_close_matches(wrong, sorted(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def suggest(wrong: str, known: Iterable[str]) -> str:
    """The same, or a list of what there is."""
    known = sorted(known)
    listed = ", ".join(known[:LISTED]) + (", ..." if len(known) > LISTED else "")
    return near(wrong, known) or (f" Known: {listed}." if known else "")
