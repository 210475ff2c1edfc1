"""Several processes that serve: started by forking, replaced when they die, stopped together.

In: what a worker does. Out: nothing, when a signal ended the server; an error when workers do not live.

Notable choices
- Workers are forked from a parent that has loaded the models and computes nothing: they share the memory of the
  weights, of the tokenizers and of Python itself, and a new one answers within a fraction of a second. A worker that
  starts from nothing takes 150 MB more and two seconds, most of it for importing torch.
- The parent has not started torch's threads, which a fork would not copy.
- Workers end when the parent does, however it ended: the end of a pipe tells them.
- A worker that dies is replaced at once. One that dies young, again and again, is not: the server ends, and says how
  the workers did.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from keel.errors import UserError

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus_client when it is imported
YOUNG = 2.0  # seconds: a worker that ends sooner did not really start
MOST_YOUNG = 5  # deaths of young workers, one after the other
FIRST_DELAY = 0.1  # seconds before a young worker is replaced, doubled each time
STOPPING = tuple(number for number in signal.Signals if number.name in ("SIGTERM", "SIGINT", "SIGHUP"))

Work = Callable[[int, int], None]  # the place of the worker; a descriptor that can be read when the parent has ended


@dataclass
class Started:
    place: int
    at: float


class Supervisor:
    """Keeps `count` workers alive until a signal comes. `ended` is called with the place and the process of each that
    died."""

    def __init__(self, count: int, work: Work, ended: Callable[[int, int], None], patience: float) -> None:
        self.count, self.work, self.ended, self.patience = count, work, ended, patience
        self._alive = dict[int, Started]()
        self._due = dict[int, float]()  # places that are empty, and when they are filled
        self._young = 0

    def run(self) -> None:
        self._pipe = os.pipe()
        self._wake = os.pipe()
        for end in self._wake:
            os.set_blocking(end, False)
        before = {number: signal.signal(number, _noted) for number in (*STOPPING, signal.SIGCHLD)}
        woken = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        try:
            self._due = dict.fromkeys(range(self.count), time.monotonic())
            self._keep()
        finally:
            self._stop()
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            for end in (*self._pipe, *self._wake):
                os.close(end)

    def _keep(self) -> None:
        """Replaces workers until the server is told to stop."""
        while True:
            now = time.monotonic()
            for place in [place for place, due in self._due.items() if due <= now]:
                del self._due[place]
                self._start(place)
            if set(self._wait(min(self._due.values(), default=now + 60) - now)) & set(STOPPING):
                return
            for started, how in self._reap():
                self._replace(started, how)

    def _replace(self, started: Started, how: str) -> None:
        now = time.monotonic()
        self._young = self._young + 1 if now - started.at < YOUNG else 0
        if self._young >= MOST_YOUNG:
            raise UserError(
                f"{self._young} workers in a row ended within {YOUNG:g} seconds of their start, the last one by {how}; "
                "keel serve --workers 1 shows why"
            )
        self._due[started.place] = now + (FIRST_DELAY * 2 ** (self._young - 2) if self._young > 1 else 0)

    def _start(self, place: int) -> None:
        process = os.fork()
        if process:
            self._alive[process] = Started(place, time.monotonic())
            return
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (*STOPPING, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL if number in (signal.SIGTERM, signal.SIGCHLD) else signal.SIG_IGN)
            for end in (self._pipe[1], *self._wake):
                os.close(end)
            self.work(place, self._pipe[0])
            code = 0
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def _wait(self, seconds: float) -> bytes:
        """The signals that came, within so many seconds."""
        select.select([self._wake[0]], [], [], max(0.0, seconds))
        try:
            return os.read(self._wake[0], 1 << 12)
        except BlockingIOError:
            return b""

    def _reap(self) -> list[tuple[Started, str]]:
        """The workers that have ended, and how."""
        found = []
        while self._alive:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                break
            if (started := self._alive.pop(process, None)) is not None:
                self.ended(started.place, process)
                found.append((started, _told(os.waitstatus_to_exitcode(status))))
        return found

    def _stop(self) -> None:
        """Asks all workers to end, waits for what they have accepted, and then no longer. A second signal is passed on:
        they end without waiting."""
        deadline = time.monotonic() + self.patience
        self._tell(signal.SIGTERM)
        self._reap()
        while self._alive and (left := deadline - time.monotonic()) > 0:
            if set(self._wait(min(left, 1.0))) & set(STOPPING):
                self._tell(signal.SIGTERM)
            self._reap()
        self._tell(signal.SIGKILL)
        while self._alive:
            self._wait(0.1)
            self._reap()

    def _tell(self, number: int) -> None:
        for process in self._alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


def _noted(number: int, frame: Any) -> None:
    """The wake-up descriptor has the number."""


def _told(code: int) -> str:
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


@contextlib.contextmanager
def shared_metrics() -> Iterator[None]:
    """A folder in which all workers count; to be entered before prometheus_client is imported."""
    folder = tempfile.mkdtemp(prefix="keel-metrics-")
    os.environ[SHARED_METRICS] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_workers(workers: int) -> None:
    if workers > 1 and sys.platform == "win32":
        raise UserError(f"--workers {workers}: this system cannot fork; run one server per port instead")
