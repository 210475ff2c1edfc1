"""What an answer costs is measured in the process that answers."""

from __future__ import annotations

import subprocess
import sys


def test_a_process_does_not_inherit_its_parents_memory() -> None:
    child = "from keel.comparing.cost import peak_kilobytes; print(peak_kilobytes())"
    parent = (
        "import subprocess, sys\nheld = bytearray(b'x') * (400 << 20)\n"
        "print(subprocess.run(sys.argv[1:], capture_output=True, text=True, check=True).stdout)"
    )
    command = [sys.executable, "-c", parent, sys.executable, "-c", child]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 5_000 < float(done.stdout) < 200_000
