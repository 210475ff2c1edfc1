"""Lines for a person, on stderr or in a notebook.

In: text, which may hold names and texts from anywhere. Out: the same without control characters. A terminal or log
that has gone away never ends the work: what cannot be printed is dropped.

Notable choice: IPython is used only where it is already running. rich draws in notebooks too, but needs ipywidgets for
a line that changes.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import time
from collections.abc import Iterable
from typing import Any


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


class NotebookLine:
    """A line in the output of a notebook's cell that changes in place; notes are lines of their own below it."""

    EVERY = 0.5  # seconds between changes

    def __init__(self) -> None:
        from IPython.display import display

        self.display = display
        self.handle: Any = None
        self.text = ""
        self.at = 0.0

    def show(self, text: str) -> None:
        self.text = text
        if self.handle is None or time.monotonic() - self.at >= self.EVERY:
            self.flush()

    def note(self, text: str) -> None:
        self.display(_plain(text), raw=True)

    def flush(self) -> None:
        """Shows the last text, which may have come too soon after the one before."""
        if not self.text:
            return
        if self.handle is None:
            self.handle = self.display(_plain(self.text), raw=True, display_id=True)
        else:
            self.handle.update(_plain(self.text), raw=True)
        self.text, self.at = "", time.monotonic()


def notebook_line() -> NotebookLine | None:
    """None: this process does not belong to a notebook. Jupyter, Colab and VS Code run a ZMQInteractiveShell."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    kinds = {kind.__name__ for kind in type(shell).__mro__}
    return NotebookLine() if "ZMQInteractiveShell" in kinds else None


def _plain(text: str) -> dict[str, str]:
    return {"text/plain": clean(text)}
