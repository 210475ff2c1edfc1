"""The command `keel`.

In: the command line. Out: an exit code: 0 done (or stopped on request, with the work saved), 1 a bug in Keel, 2 an
error that the user can fix, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP, 141 the output pipe was closed. Every error is one
line on stderr.

Notable choice: this module imports nothing but the signal handlers, so that Ctrl-C is answered with one line while the
parser, and later torch, are still being imported.
"""

from __future__ import annotations

import gc
import io
import os
import sys

from keel.cli import signals
from keel.console import say
from keel.openmp import share_cores


def main() -> None:
    signals.listen()
    try:
        code = _start()
        signals.stop_listening()
    except KeyboardInterrupt:
        signals.stop_listening()
        code = signals.leave()
    gc.freeze()  # the search for garbage at exit takes half a second when torch is loaded
    sys.exit(code)


def _start() -> int:
    if sys.stdout is None:
        say("keel: stdout is closed; redirect it, to /dev/null for instance, or leave it open")
        return 2
    _occupy_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # Arguments and file names may contain bytes that cannot be printed.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    share_cores()
    return run(sys.argv[1:])


def _occupy_closed_streams() -> None:
    """Opens /dev/null in place of a closed stdin or stderr: the next file would get its number, and be written to by
    whatever prints to stderr."""
    for number, flags in ((0, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    from keel.cli import root

    return root.run(arguments)
