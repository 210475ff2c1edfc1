"""The line with every connection forbidden: Python reports each attempt to an audit hook, which ends the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
