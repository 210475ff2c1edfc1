"""Commands of `keel` in processes of their own, one after the other or several at once.

In: commands. Out: nothing but what they write; `Stopped` if one was stopped and saved itself.

Why: pretrainings that shared one process went from 10,000 to 6,500 tokens a second; a fresh process had 8,500 again.
The cause is not known, and part of it may have been the machine; this way no run inherits anything from another.
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

INTERRUPTED = (130, -signal.SIGINT)  # exit codes when Ctrl-C came before there was anything to save
# Ctrl-C while it is still importing ends it without a word.
CODE = (
    "import signal as s; s.signal(s.SIGINT, s.SIG_DFL); from keel.cli.main import main; "
    "s.signal(s.SIGINT, s.default_int_handler); main()"
)
PASSED_ON = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
LOOK_AGAIN = 0.1  # seconds


@dataclass(frozen=True)
class Command:
    """`keel ARGUMENTS`. `finished` tells afterwards whether it did all of it, or was stopped and saved itself; `ended`
    is called if it did."""

    title: str
    arguments: list[str]
    finished: Callable[[], bool]
    ended: Callable[[], None]


def words(options: Mapping[str, Any]) -> list[str]:
    """A stage's arguments as the command line has them."""
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
    """Runs them all, their progress and their errors shown on stderr as ever.

    A command is taken from `commands` when its turn has come."""
    waiting, lanes = iter(commands), _Lanes()
    with _passing_on_signals(lanes):
        try:
            while True:
                while len(lanes.running) < at_once and not lanes.told and (command := next(waiting, None)):
                    lanes.start(command)
                if not lanes.running:
                    break
                for command, code in lanes.ended():
                    if command.finished():
                        command.ended()
                    elif lanes.told or code in (0, *INTERRUPTED):
                        lanes.tell()  # whoever stopped one meant all
                    else:
                        raise _failure(command, code)
        finally:
            lanes.end()
    if lanes.told:
        raise Stopped("stopped")


@dataclass
class _Lanes:
    """The commands under way. In sessions of their own they hear no Ctrl-C: they are told here, once."""

    running: dict[subprocess.Popen[bytes], Command] = field(default_factory=dict)
    told: bool = False

    def start(self, command: Command) -> None:
        words = [sys.executable, "-c", CODE, *command.arguments]
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        self.running[child] = command
        if self.told:  # while it was being started
            child.send_signal(signal.SIGINT)

    def tell(self) -> None:
        if not self.told:
            self.told = True
            for child in self.running:
                child.send_signal(signal.SIGINT)

    def ended(self) -> Iterator[tuple[Command, int]]:
        """Waits until one has ended at least; each with its exit code."""
        while not (over := [child for child in self.running if child.poll() is not None]):
            time.sleep(LOOK_AGAIN)
        for child in over:
            yield self.running.pop(child), child.returncode

    def end(self) -> None:
        """This process fails; the others save themselves."""
        for child in self.running:
            child.terminate()
        for child in self.running:
            child.wait()


def _failure(command: Command, code: int) -> UserError:
    if code < 0:
        return UserError(f"{command.title}: killed by signal {-code}; --resume goes on from what was saved")
    return UserError(f"{command.title}: failed, as said above; what is finished is kept")


@contextlib.contextmanager
def _passing_on_signals(lanes: _Lanes) -> Iterator[None]:
    """Those that would end this process (`nohup` may have taken one out) tell the commands to save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: lanes.tell()) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
