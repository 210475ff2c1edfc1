"""SIGTERM, Ctrl-C and a closed terminal (SIGHUP) stop a run at once, except during a weight update."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))  # not on Windows


class Interrupted(BaseException):
    """Raised inside a step by a signal; caught by the loop."""


class StopRequest:
    """Turns these signals into a request to stop, which interrupts the loop wherever it is `interruptible`."""

    def __init__(self) -> None:
        self.asked = False
        self.may_raise = False

    def _on_signal(self, number: int, frame: Any) -> None:
        self.asked = True
        if self.may_raise:
            self.may_raise = False
            raise Interrupted

    @contextlib.contextmanager
    def listening(self) -> Iterator[StopRequest]:
        if threading.current_thread() is not threading.main_thread():
            yield self  # only the main thread can handle signals; in another thread they are left to the caller
            return
        heard = [s for s in SIGNALS if s is signal.SIGINT or signal.getsignal(s) is not signal.SIG_IGN]  # nohup
        before = {number: signal.signal(number, self._on_signal) for number in heard}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        self.may_raise = True
        try:
            if self.asked:  # the signal came while it could not be raised
                raise Interrupted
            yield
        finally:
            self.may_raise = False
