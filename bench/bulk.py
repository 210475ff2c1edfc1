"""A million short lines through `keel predict --out`, killed twice: are they complete, in order, in bounded memory?

    python bench/bulk.py MODEL [--rows 1000000] [--out answers.csv] [--folder DIR]

MODEL is a fine-tuned model that takes one text. The lines are generated from a fixed seed. The command is started,
killed with SIGKILL at about a third and two thirds of the rows, and resumed each time. The result is compared with the
input, row by row; with --twice also with an undisturbed run, byte by byte. The last line is the result as JSON: rows a
second of each part, and the peak memory of the largest process.
"""

from __future__ import annotations

import argparse
import csv
import filecmp
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORDS = (
    "the a of in harbour island captain sailor mast keel gull storm dawn winter lantern plank oak remembers follows "
    "repairs carries forgets old young tall broken seven good bad calm bright rain grey cold warm boat crew evening"
)
KEEL = [sys.executable, "-c", "from keel.cli.main import main; main()"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model")
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--out", default="answers.csv", help="name of the table; its suffix is the format")
    options.add_argument("--folder", help="where to write; default: a temporary folder, removed at the end")
    options.add_argument("--twice", action="store_true", help="run once more without kills, and compare the bytes")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        print(json.dumps(measure(given.model, given.rows, Path(folder), given.out, given.twice)))


def measure(model: str, rows: int, folder: Path, name: str, twice: bool) -> dict[str, Any]:
    table, out = folder / "lines.csv", folder / name
    generate(table, rows)
    command = [*KEEL, "predict", model, "--file", str(table), "--out", str(out), "--resume", "--json"]
    parts = [run_until(command, out, rows * part // 3) for part in (1, 2)]
    parts.append(run_until(command, out, None))
    check(table, out, rows)
    result = {"rows": rows, "parts": parts, "peak_megabytes": max(part["peak_megabytes"] for part in parts)}
    if twice:
        calm = folder / f"calm-{name}"
        result["undisturbed"] = run_until([*command[:-3], str(calm), "--json"], calm, None)
        assert filecmp.cmp(out, calm, shallow=False), "the bytes differ"
    return result


def generate(path: Path, rows: int) -> None:
    """Short texts with a number each; one in ten thousand is empty."""
    source, words = random.Random(1), WORDS.split()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "text"))
        for row in range(rows):
            text = " ".join(source.choices(words, k=source.randint(3, 12)))
            writer.writerow((row, "" if row % 10_000 == 7777 else text))


def run_until(command: list[str], out: Path, rows: int | None) -> dict[str, Any]:
    """Runs the command to its end, or kills it when so many rows are in its journal; speed and peak memory."""
    journal = out.with_name(f"{out.name}.partial") / "journal.json"
    began, first = time.monotonic(), rows_in(journal)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak, last = 0.0, first
    while process.poll() is None:
        time.sleep(0.2)
        peak = max(peak, peak_megabytes(process.pid))
        last = max(last, rows_in(journal))
        if rows is not None and last >= rows:
            process.kill()
            break
    code = process.wait()
    assert code == (0 if rows is None else -9), f"exit code {code}"
    seconds = time.monotonic() - began
    return {"from": first, "to": last, "seconds": round(seconds, 1), "peak_megabytes": round(peak)}


def rows_in(journal: Path) -> int:
    try:
        return int(json.loads(journal.read_text())["state"].get("rows", 0))
    except (OSError, ValueError):
        return 0


def peak_megabytes(process: int) -> float:
    """The largest resident memory of a process so far, as Linux counts it."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def check(table: Path, out: Path, rows: int) -> None:
    """Every row is there once, in order, with an answer or a reason."""
    answered = 0
    with table.open(newline="") as given:
        for number, (before, after) in enumerate(zip(csv.DictReader(given), read(out), strict=True)):
            assert str(after["id"]) == before["id"] == str(number), (number, after)
            assert after["text"] == before["text"]
            assert bool(after["error"]) == (before["text"] == "")
            answered += not after["error"]
    assert answered == rows - sum(row % 10_000 == 7777 for row in range(rows))
    print(f"{rows:,} rows in order, {answered:,} with an answer", file=sys.stderr)


def read(out: Path) -> Any:
    if out.suffix == ".csv":
        with out.open(newline="") as file:
            yield from csv.DictReader(file)
    elif out.suffix == ".jsonl":
        with out.open() as file:
            yield from map(json.loads, file)
    else:
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile(out).iter_batches():
            yield from batch.to_pylist()


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    main()
