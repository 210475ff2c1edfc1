"""Lines for a person, on stderr.

In: text, which may hold names and texts from anywhere. Out: the same without control characters. A terminal or log
that has gone away never ends the work: what cannot be printed is dropped.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Iterable


def clean(text: object) -> str:
    """Text made safe for a terminal: control characters are shown as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def shell_command(words: Iterable[str]) -> str:
    """A command to be pasted into bash, zsh or ksh, which `clean` leaves as it is."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """shlex.quote, or $'...' with octal bytes if there is anything that is not printable (newlines, joined emoji)."""
    if word.isprintable():
        return shlex.quote(word)
    shown = (
        chr(byte) if 32 <= byte < 127 and chr(byte) not in "\\'" else f"\\{byte:03o}" for byte in os.fsencode(word)
    )
    return f"$'{''.join(shown)}'"


def path_argument(path: str) -> str:
    """A path that no parser takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def say(line: str) -> None:
    stderr = Stderr()
    stderr.write(clean(line) + "\n")
    stderr.flush()


class Stderr(io.TextIOBase):
    """The process's stderr, without its errors.

    The stream is kept: rich puts a proxy in place of sys.stderr while it draws a bar, and the proxy writes to this."""

    encoding = "utf-8"  # what rich draws its bars with

    def __init__(self) -> None:
        self.stream = sys.stderr

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never opened (None)
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self.stream.flush()

    def isatty(self) -> bool:
        return self.stream is not None and not self.stream.closed and self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()
