"""The command in forked children of a process that has imported torch: many commands cost one import.

As a program: one JSON request per line on stdin (`arguments`, `env`, `cwd`), one answer per line on stdout (`code`,
`output`, `error`). `WarmKeel` starts the program and talks to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


class WarmKeel:
    def __init__(self, *modules: str) -> None:
        """`modules` are imported before the first command."""
        self.process = subprocess.Popen(
            [sys.executable, __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments: object, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        words = [str(argument) for argument in arguments]
        self.process.stdin.write(json.dumps({"arguments": words, "env": env, "cwd": str(cwd)}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return subprocess.CompletedProcess(words, answer["code"], answer["output"], answer["error"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def _serve() -> None:
    for module in sys.argv[1:]:
        __import__(module)
    from keel.cli.main import main

    answers = os.fdopen(os.dup(1), "w")  # children write to files
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as work:
            paths = [Path(work) / name for name in ("output", "error")]
            child = os.fork()
            if not child:
                for number, path in enumerate(paths, 1):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.environ.clear()
                os.environ.update(request["env"])
                os.chdir(request["cwd"])
                sys.argv = ["keel", *request["arguments"]]
                try:
                    main()
                except SystemExit as end:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(int(end.code or 0))
                os._exit(99)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output, error = (path.read_text(encoding="utf-8", errors="replace") for path in paths)
        answers.write(json.dumps({"code": code, "output": output, "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
