"""Bulk prediction through the real command: killed, interrupted or out of space at any moment, it is continued with
--resume and ends with the bytes of an undisturbed run.

KEEL_KILLS=20 kills twenty times; the default is a handful, to stay fast.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., subprocess.Popen[str]]
Keel = Callable[..., subprocess.CompletedProcess[str]]

KILLS = int(os.environ.get("KEEL_KILLS", "3"))
ROWS = 8000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bulk") / "in.csv"
    words = ("captain", "sailor", "gull", "mast")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        for n in range(ROWS):
            writer.writerow([f"row {n}", "" if n % 1000 == 999 else f"the {words[n % 4]} remembers {n} " * (1 + n % 3)])
    return path


@pytest.fixture(scope="module")
def calm(keel: Keel, classifier: Path, table: Path) -> Path:
    """The directory with the answers of an undisturbed run, in each format."""
    for name in ("calm.csv", "calm.parquet"):
        done = keel("predict", classifier, "--file", table, "--out", table.with_name(name), "--json", "--quiet")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["rows"], result["errors"]) == (ROWS, ROWS // 1000)
    with table.with_name("calm.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"row {n}" for n in range(ROWS)]
    return table.parent


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for(moment: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not moment() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


@pytest.mark.timeout(90 + 30 * KILLS)
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_killed_again_and_again(
    name: str, start_keel: Start, keel: Keel, classifier: Path, table: Path, calm: Path, tmp_path: Path
) -> None:
    source, out = random.Random(name), tmp_path / name
    folder = tmp_path / f"{name}.partial"
    command = ["predict", classifier, "--file", table, "--out", out, "--resume", "--quiet"]
    whole, landed = size(calm / "calm.csv"), 0
    for number in range(KILLS):
        process = start_keel(*command)
        wanted = size(folder / "data") + source.random() * whole / KILLS
        if number % 4 == 2:
            wait_for(lambda: (folder / "table").exists(), process)  # it is being joined with the rows
        else:
            wait_for(lambda wanted=wanted: size(folder / "data") > wanted, process)  # type: ignore[misc]
        time.sleep(source.uniform(0, 0.02))
        process.kill()
        process.wait()
        landed += process.returncode == -9
        assert out.exists() == (process.returncode == 0)
    assert landed > KILLS // 2, "most kills met a run that was under way"
    if not out.exists():
        done = keel(*command)
        assert done.returncode == 0, done.stderr
    assert out.read_bytes() == (calm / f"calm.{name.partition('.')[2]}").read_bytes()
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_says_how_to_continue(
    number: signal.Signals, start_keel: Start, keel: Keel, classifier: Path, table: Path, calm: Path, tmp_path: Path
) -> None:
    out, data = tmp_path / "a.csv", tmp_path / "a.csv.partial" / "data"
    command = ["predict", classifier, "--file", table, "--out", out]
    process = start_keel(*command)
    wait_for(lambda: size(data) > size(calm / "calm.csv") // 2, process)  # more than one group
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number
    said = process.log.read_text()  # type: ignore[attr-defined]
    assert "rows are answered and kept; add --resume" in said and "Traceback" not in said
    kept = json.loads((tmp_path / "a.csv.partial" / "journal.json").read_text())["state"]["rows"]
    assert f"{kept:,} rows are answered" in said and kept > 0
    done = keel(*command, "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_after"] == kept
    assert out.read_bytes() == (calm / "calm.csv").read_bytes()


def test_a_full_disk_keeps_what_was_done(
    small_disk: Callable[[int], Path],
    keel: Keel,
    one_line: Callable[..., str],
    classifier: Path,
    table: Path,
    calm: Path,
) -> None:
    """The answers fit, the finished table beside them does not; then some space is free again."""
    whole = size(calm / "calm.csv") >> 10
    disk = small_disk(int(2.6 * whole))
    (disk / "other").write_bytes(bytes(whole << 10))
    command = ["predict", classifier, "--file", table, "--out", disk / "a.csv", "--quiet"]
    line = one_line(keel(*command))
    assert "a.csv: no space left on the disk" in line and "add --resume" in line
    assert not (disk / "a.csv").exists()
    assert "no space left" in one_line(keel(*command, "--resume"))
    (disk / "other").unlink()
    done = keel(*command, "--resume")
    assert done.returncode == 0, done.stderr
    assert (disk / "a.csv").read_bytes() == (calm / "calm.csv").read_bytes()


def test_two_commands_do_not_write_one_table(
    start_keel: Start,
    keel: Keel,
    one_line: Callable[..., str],
    classifier: Path,
    table: Path,
    calm: Path,
    tmp_path: Path,
) -> None:
    command = ["predict", classifier, "--file", table, "--out", tmp_path / "a.csv", "--resume", "--quiet"]
    process = start_keel(*command)
    wait_for(lambda: size(tmp_path / "a.csv.partial" / "data") > 0, process)
    process.send_signal(signal.SIGSTOP)
    assert "is writing there" in one_line(keel(*command))
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "a.csv").read_bytes() == (calm / "calm.csv").read_bytes()
