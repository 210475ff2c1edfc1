"""Runs keel commands in forked children, so that hundreds of faults cost one import of torch.

As a program, with failing_calls.c preloaded: one JSON request per line on stdin (`arguments`, `folder`, `nth`, `how`),
one JSON answer per line on stdout (`code`: the exit code, negative for a signal; `error`: stderr; `output`: stdout;
`seen`: system calls that changed the folder). `Server` starts the program and talks to it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KILL = -9  # as `how`: SIGKILL at the call, after half of its bytes if it writes


def compile_shim(folder: Path) -> Path | None:
    """The preloadable library, or None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "failing_calls.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "failing_calls.c", "-ldl"],
        check=True,
        capture_output=True,
    )
    return library


class Server:
    def __init__(self, library: Path) -> None:
        environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "KEEL_SHIM": str(library)}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, arguments: list[Any], folder: Path, nth: int = -1, how: int = 0) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        request = {"arguments": [str(a) for a in arguments], "folder": os.path.realpath(folder), "nth": nth, "how": how}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def _serve() -> None:
    import keel.stages.corpus
    import keel.stages.embed
    import keel.stages.finetune
    import keel.stages.predict
    import keel.stages.pretrain
    import keel.stages.tokenizer
    import keel.stages.word_vectors
    from keel.cli.main import run

    # Groups of a few rows and a journal after each, so that a small file has as many moments as a large one.
    keel.stages.predict.GROUP_SIZE = keel.stages.embed.GROUP_SIZE = 1 << 13
    keel.files.growing.SYNC_SECONDS = 0.0
    library = ctypes.CDLL(os.environ["KEEL_SHIM"])
    library.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    library.fault_seen.restype = ctypes.c_long
    answers = os.fdopen(os.dup(1), "w")  # forked children write to files instead of stdout
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as work:
            paths = [Path(work) / name for name in ("output", "error", "seen")]
            child = os.fork()
            if not child:
                for number, path in enumerate(paths[:2], 1):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                library.fault_arm(request["folder"].encode(), request["nth"], request["how"])
                code = 99
                try:
                    code = run(request["arguments"])
                finally:
                    paths[2].write_text(str(library.fault_seen()))
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            status = os.waitpid(child, 0)[1]
            output, error, seen = (path.read_text(errors="replace") if path.exists() else "" for path in paths)
        code = os.waitstatus_to_exitcode(status)
        answers.write(json.dumps({"code": code, "output": output, "error": error, "seen": int(seen or -1)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
