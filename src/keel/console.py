"""Lines for a person, on stderr.

In: text, which may hold names and texts from anywhere. Out: the same without control characters. A terminal or log
that has gone away never ends the work: what cannot be printed is dropped.
"""

from __future__ import annotations

import contextlib
import io
import sys


def clean(text: object) -> str:
    """Text made safe for a terminal: control characters are shown as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def say(line: str) -> None:
    stderr = Stderr()
    stderr.write(clean(line) + "\n")
    stderr.flush()


class Stderr(io.TextIOBase):
    """The process's stderr, without its errors."""

    encoding = "utf-8"  # what rich draws its bars with

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never opened (None)
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()

    def fileno(self) -> int:
        return sys.stderr.fileno()
