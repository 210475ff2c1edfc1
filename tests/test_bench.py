"""Every script in bench/ imports, so a renamed function is noticed before somebody measures with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent.parent / "bench"


def test_every_script_imports_what_exists() -> None:
    """In one process, without running any: each has a main that only __main__ calls."""
    scripts = sorted(BENCH.glob("*.py"))
    assert len(scripts) >= 9
    code = (
        "import runpy, sys\nsys.path.insert(0, sys.argv[1])\n"
        "for script in sys.argv[2:]:\n  sys.argv = [script]\n  runpy.run_path(script, run_name='imported')"
    )
    command = [sys.executable, "-c", code, str(BENCH), *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "", "importing does nothing"
