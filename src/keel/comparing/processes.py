"""Runs `keel` commands in child processes, one after the other or several in parallel.

In: commands. Out: the files that they write; raises `Stopped` if one was stopped and has saved its state.

Why: several pretraining runs in one process slowed down from 10,000 to 6,500 tokens per second; a fresh process had
8,500 again. The cause is not known, and part of it may have been the machine; separate processes share no state.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from keel.errors import Stopped, UserError

INTERRUPTED = (130, -signal.SIGINT)  # exit codes if Ctrl-C came before there was anything to save
# Ctrl-C while it is still importing ends it without a traceback.
CODE = (
    "import signal as s; s.signal(s.SIGINT, s.SIG_DFL); from keel.cli.main import main; "
    "s.signal(s.SIGINT, s.default_int_handler); main()"
)
PASSED_ON = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
LOOK_AGAIN = 0.1  # seconds between polls


@dataclass(frozen=True)
class Command:
    """`keel ARGUMENTS`. `finished` returns whether it ran to its end; if not, it was stopped and has saved its state.
    `ended` is called if it ran to its end."""

    title: str
    arguments: list[str]
    finished: Callable[[], bool]
    ended: Callable[[], None]


def words(options: Mapping[str, Any]) -> list[str]:
    """A stage's arguments as command-line options."""
    found = []
    for name, value in options.items():
        if name == "overrides":
            found += [word for change in value for word in ("--set", change)]
        elif value is True:
            found.append(f"--{name}")
        elif value is not None and value is not False:
            found += [f"--{name}", str(value)]
    return found


def run_apart(commands: Iterable[Command], at_once: int = 1) -> None:
    """Runs all commands; they print their progress and errors on stderr.

    A command is taken from `commands` only when it is about to start."""
    waiting, children = iter(commands), _Children()
    with _passing_on_signals(children):
        try:
            while True:
                while len(children.running) < at_once and not children.stopping and (command := next(waiting, None)):
                    children.start(command)
                if not children.running:
                    break
                for command, code in children.ended():
                    if command.finished():
                        command.ended()
                    elif children.stopping or code in (0, *INTERRUPTED):
                        children.tell()  # if one is stopped, all are
                    else:
                        raise _failure(command, code)
        finally:
            children.end()
    if children.stopping:
        raise Stopped("stopped")


@dataclass
class _Children:
    """The running children. Ctrl-C does not reach them, because they have their own sessions: `tell` passes it on."""

    running: dict[subprocess.Popen[bytes], Command] = field(default_factory=dict)
    stopping: bool = False

    def start(self, command: Command) -> None:
        words = [sys.executable, "-c", CODE, *command.arguments]
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        self.running[child] = command
        if self.stopping:  # a stop was requested while it was starting
            child.send_signal(signal.SIGINT)

    def tell(self) -> None:
        if not self.stopping:
            self.stopping = True
            for child in self.running:
                child.send_signal(signal.SIGINT)

    def ended(self) -> Iterator[tuple[Command, int]]:
        """Waits until at least one has ended; yields each with its exit code."""
        while not (over := [child for child in self.running if child.poll() is not None]):
            time.sleep(LOOK_AGAIN)
        for child in over:
            yield self.running.pop(child), child.returncode

    def end(self) -> None:
        """Ends the children that are still running, because this process failed; they save their state."""
        for child in self.running:
            child.terminate()
        for child in self.running:
            child.wait()


def _failure(command: Command, code: int) -> UserError:
    if code < 0:
        return UserError(f"{command.title}: killed by signal {-code}; --resume continues from the last checkpoint")
    return UserError(f"{command.title}: failed (see the error above); finished runs are kept")


@contextlib.contextmanager
def _passing_on_signals(children: _Children) -> Iterator[None]:
    """Signals that would end this process (not those that `nohup` ignores) make the children save and stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: children.tell()) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
