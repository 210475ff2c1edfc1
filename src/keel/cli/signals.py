"""Signals that end a command: Ctrl-C, SIGTERM and SIGHUP become an exception, so that temporary files are removed.

In: a signal. Out: `StoppedBySignal`, raised in the main thread. Training replaces these handlers by its own, which save
a checkpoint (`training/stopping.py`).

Notable choices
- A signal that is ignored stays ignored: nohup, and background jobs of a shell.
- Forked children get the default handlers: `terminate()` ends them without a traceback.
- While torch is imported, the process ends at once: C++ code that calls Python aborts on an exception, and no work has
  begun.
- When the command is done they have their default effect again: an exception during the interpreter's exit would be
  printed with a traceback.
- The last signal is remembered: an import or a library may catch the exception and raise one of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from keel.console import say

NAMES = {"SIGINT": "Ctrl-C", "SIGTERM": "SIGTERM", "SIGHUP": "SIGHUP"}

_received: list[int] = []


class StoppedBySignal(KeyboardInterrupt):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def code(self) -> int:
        return 128 + self.number

    def __str__(self) -> str:
        return f"stopped by {NAMES[signal.Signals(self.number).name]}"


def listen() -> None:
    for number in _signals():
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    if os.name == "posix":
        os.register_at_fork(after_in_child=stop_listening)


def stop_listening() -> None:
    for number in _signals():
        if signal.getsignal(number) is _stop:
            signal.signal(number, signal.SIG_DFL)


def received() -> int | None:
    """The last of these signals, None if there was none."""
    return _received[-1] if _received else None


def leave() -> int:
    """Says which signal came, and returns the exit code."""
    stopped = StoppedBySignal(received() or signal.SIGINT)
    say(f"keel: {stopped}")
    return stopped.code


def _stop(number: int, frame: Any) -> None:
    _received.append(number)
    if _importing_torch():
        os._exit(leave())
    raise StoppedBySignal(number)


def _importing_torch() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(vars(torch.__spec__).get("_initializing"))


def _signals() -> list[signal.Signals]:
    """Windows has no SIGHUP."""
    return [number for number in signal.Signals if number.name in NAMES]
