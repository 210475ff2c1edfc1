"""A pretraining in a process of its own, for comparisons by the clock.

In: what `keel pretrain` takes. Out: the model folder; `Stopped` if the run was stopped and saved.

Why: in one process the first recipe has the advantage. What earlier runs leave behind (a scattered heap, warm or stale
caches) slows later ones by up to a third.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from keel.checkpoint import MANIFEST
from keel.errors import Stopped, UserError

INTERRUPTED = 130  # the command line's exit code when Ctrl-C came before there was anything to save
COMMAND = (sys.executable, "-c", "from keel.cli.main import main; main()")


def pretrain_apart(
    recipe: str,
    *,
    corpus: str,
    out: str,
    budget: str,
    overrides: Sequence[str] = (),
    resume: bool = False,
    threads: int | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> None:
    """As `pretrain`, its progress and its errors shown on stderr as ever."""
    options = ["--corpus", corpus, "--out", out, "--budget", budget, "--device", device]
    options += [word for change in overrides for word in ("--set", change)]
    options += ["--threads", str(threads)] if threads else []
    options += [name for name, wanted in (("--resume", resume), ("--quiet", quiet)) if wanted]
    command = [*COMMAND, "pretrain", recipe, *options]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        with _passing_on_signals(child):
            code = child.wait()
    finally:
        if child.poll() is None:  # this process fails; the run saves itself
            child.terminate()
            child.wait()
    if code and code != INTERRUPTED:
        raise UserError(f"pretraining {recipe} failed, as said above; what is finished is kept")
    if not (Path(out) / MANIFEST).is_file():
        raise Stopped(f"{recipe} was stopped")


@contextlib.contextmanager
def _passing_on_signals(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """The child, in a session of its own, hears no Ctrl-C: it is told here, once, and waited for while it saves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    told: list[int] = []

    def tell(number: int, frame: object) -> None:
        if not told:
            child.send_signal(signal.SIGINT)
        told.append(number)

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
