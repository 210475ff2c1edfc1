"""The line with every connection forbidden: Python reports each attempt to an audit hook, which ends the process. And
one file of the package alone knows how to connect."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import keel

FORBIDDEN = """
import os, sys

def forbid(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind"):
        os.write(2, f"{event} {arguments}".encode())
        os._exit(99)

sys.addaudithook(forbid)
"""
LINE = """
from keel.cli.main import run
text, folder, *tiny = sys.argv[1:]
options = [part for override in tiny for part in ("--set", override)]
table = folder + "/t.tsv"
with open(table, "w") as file:
    file.write("text\\tlabel\\n" + "the old keel\\ta\\na young sailor\\tb\\n" * 4)
for words in (
    ["tokenizer", "train", text, "--vocab-size", "200", "--out", folder + "/tokenizer"],
    ["corpus", "build", text, "--tokenizer", folder + "/tokenizer", "--workers", "1", "--out", folder + "/corpus"],
    ["pretrain", "bert-tiny", "--corpus", folder + "/corpus", "--steps", "2", *options, "--out", folder + "/model"],
    ["fill", folder + "/model", "the [MASK]"],
    ["finetune", folder + "/model", "classify", "--train", table, "--epochs", "1", "--out", folder + "/task"],
    ["predict", folder + "/task", "the old keel"],
):
    assert run(words) == 0, words
"""


def test_no_step_of_the_line_connects_to_anything(text_file: Path, tiny: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORBIDDEN + LINE, str(text_file), str(tmp_path), *tiny]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "task" / "model.safetensors").exists()


def test_a_connection_would_be_noticed() -> None:
    code = FORBIDDEN + "import socket\nsocket.create_connection(('127.0.0.1', 9))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 99


CACHED = """
from keel.cli.main import run
name, folder = sys.argv[1:]
table = folder + "/t.tsv"
with open(table, "w") as file:
    file.write("text\\tlabel\\n" + "the old keel\\ta\\na young sailor\\tb\\n" * 4)
for words in (
    ["fill", name, "the [MASK]"],
    ["embed", name, "--file", table, "--out", folder + "/vectors.npy"],
    ["finetune", name, "classify", "--train", table, "--epochs", "1", "--out", folder + "/task"],
):
    assert run(words) == 0, words
assert run(["fill", "sea/unknown", "the [MASK]"]) == 2
assert "huggingface_hub" not in sys.modules
"""


def test_a_name_in_the_cache_opens_without_a_connection(finished_run: Path, tmp_path: Path) -> None:
    cached = tmp_path / "home" / "hub" / "models--sea--tiny"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("c" * 40)
    (cached / "snapshots").mkdir()
    (cached / "snapshots" / ("c" * 40)).symlink_to(finished_run)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE"))}
    command = [sys.executable, "-c", FORBIDDEN + CACHED, "sea/tiny", str(tmp_path)]
    environment = kept | {"HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    assert "`keel fetch sea/unknown`" in done.stderr


def test_one_file_alone_can_connect() -> None:
    """`hugging_face/hub.py`, which `keel fetch` uses. (`socket` gives locks the name of this machine, and a server the
    connections of others; `http` reads cookies.)"""
    connecting = {"http", "httpx", "httpx2", "requests", "urllib3", "aiohttp", "ftplib", "huggingface_hub", "ssl"}
    package = Path(keel.__file__).parent
    found = {}
    for path in sorted(package.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        rooms = {name.split(".")[0] for name in names} | {name for name in names if name == "urllib.request"}
        if used := rooms & (connecting | {"urllib.request", "socket"}):
            found[path.relative_to(package).as_posix()] = used
    listening = {"serving/accepting.py": {"socket"}, "serving/server.py": {"socket"}, "serving/login.py": {"http"}}
    assert found == {"files/locks.py": {"socket"}, "hugging_face/hub.py": {"huggingface_hub"}} | listening
    assert "http.cookies" in (package / "serving" / "login.py").read_text(encoding="utf-8")
    for name in ("files/locks.py", "serving/accepting.py", "serving/server.py"):
        text = (package / name).read_text(encoding="utf-8")
        assert "create_connection" not in text and ".connect(" not in text and "connect_ex" not in text, name
