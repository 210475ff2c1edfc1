"""A pretraining in a process of its own, for comparisons by the clock.

In: what `keel pretrain` takes. Out: the model folder; `Stopped` if the run was stopped and saved.

Why: recipes that shared one process went from 10,000 to 6,500 tokens a second, and a fresh process had 8,500 again. The
cause is not known, and part of it may have been the machine; this way no run inherits anything from another.
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

INTERRUPTED = (130, -signal.SIGINT)  # exit codes when Ctrl-C came before there was anything to save
# Ctrl-C while it is still importing ends it without a word.
CODE = (
    "import signal as s; s.signal(s.SIGINT, s.SIG_DFL); from keel.cli.main import main; "
    "s.signal(s.SIGINT, s.default_int_handler); main()"
)
PASSED_ON = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


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
    command = [sys.executable, "-c", CODE, "pretrain", recipe, *options]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        with _passing_on_signals(child) as told:
            code = child.wait()
    finally:
        if child.poll() is None:  # this process fails; the run saves itself
            child.terminate()
            child.wait()
    if told or code in INTERRUPTED:
        raise Stopped(f"{recipe} was stopped")
    if code < 0:
        raise UserError(f"pretraining {recipe} was killed by signal {-code}; --resume goes on from what was saved")
    if code:
        raise UserError(f"pretraining {recipe} failed, as said above; what is finished is kept")
    if not (Path(out) / MANIFEST).is_file():
        raise Stopped(f"{recipe} was stopped")


@contextlib.contextmanager
def _passing_on_signals(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """The child, in a session of its own, hears no Ctrl-C: it is told here, once, and waited for while it saves."""
    told: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield told
        return

    def tell(number: int, frame: object) -> None:
        if not told:
            child.send_signal(signal.SIGINT)
        told.append(number)

    before = {number: signal.signal(number, tell) for number in PASSED_ON}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
