"""SIGTERM and Ctrl-C as a request to stop, which a run sees at once except while it updates the weights."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupted(BaseException):
    """Raised inside a step by a signal; caught by the loop."""


class StopRequest:
    """Turns SIGTERM and Ctrl-C into a request that the loop sees at once, except during an update."""

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
            yield self  # only the main thread may handle signals; another thread's caller stops the process itself
            return
        before = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        self.may_raise = True
        try:
            if self.asked:  # the signal came when it could not be raised
                raise Interrupted
            yield
        finally:
            self.may_raise = False
