"""How tests start the real command as a process."""

from __future__ import annotations

import signal


def restore_signals() -> None:
    """A background job inherits Ctrl-C ignored, and what nohup starts SIGHUP; Keel respects that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
