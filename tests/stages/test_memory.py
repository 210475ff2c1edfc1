"""Memory of `predict`, `embed` and `evaluate` does not grow with the file, and groups give what all at once give."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keel.inference import model as inference
from keel.stages.embed import embed
from keel.stages.evaluate import evaluate
from keel.stages.predict import predict

Command = Callable[..., subprocess.CompletedProcess[str]]

# Runs a command line and prints the peak memory of the largest of its processes, in megabytes, as the last line.
MEASURED = """
import resource, sys
from keel.cli.main import run
from keel.comparing.cost import peak_kilobytes
code = run(sys.argv[1:])
print(max(peak_kilobytes(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024, file=sys.stderr)
sys.exit(code)
"""


def table(path: Path, rows: int, words: int) -> Path:
    names = ("captain", "sailor", "gull", "carpenter")
    with path.open("w") as file:
        file.write("text\tlabel\n")
        for n in range(rows):
            text = " ".join(f"the {names[(n + word) % 4]} {n * word}" for word in range(words))
            file.write(f"{text}\t{names[n % 4]}\n")
    return path


def peak(*command: object) -> float:
    done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return float(done.stderr.splitlines()[-1])


def test_memory_does_not_grow_with_the_file(classifier: Path, tmp_path: Path) -> None:
    small, large = (table(tmp_path / f"{rows}.tsv", rows, words=120) for rows in (5000, 15_000))
    more = (large.stat().st_size - small.stat().st_size) / 2**20
    assert more > 15
    one, other = (peak("predict", classifier, "--file", file) for file in (small, large))
    assert other - one < more / 2, ("predict", one, other)
    reports = ((file, file.with_suffix(".report")) for file in (small, large))
    one, other = (peak("evaluate", classifier, "--data", file, "--out", out) for file, out in reports)
    assert other - one < more / 2, ("evaluate", one, other)


def test_memory_of_embed_does_not_grow_with_the_file(finished_run: Path, tmp_path: Path) -> None:
    """Many short texts: a long one is refused."""
    small, large = (table(tmp_path / f"{rows}.tsv", rows, words=2) for rows in (40_000, 240_000))
    one, other = (
        peak("embed", finished_run, "--file", file, "--out", file.with_suffix(".npy")) for file in (small, large)
    )
    assert other - one < 32, (one, other)  # the vectors alone have 24 MB, texts and rows several times that
    assert np.load(large.with_suffix(".npy"), mmap_mode="r").shape[0] == 240_000


@pytest.mark.parametrize("size", [1, 5000, 1 << 30])
def test_groups_of_any_size_give_the_same_answers(
    classifier: Path, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    file = table(tmp_path / "a.tsv", rows=30, words=3)
    monkeypatch.setattr(inference, "GROUP_SIZE", 1 << 21)
    expected = predict(str(classifier), str(file)), evaluate(str(classifier), str(file))
    monkeypatch.setattr(inference, "GROUP_SIZE", size)
    answers = predict(str(classifier), str(file))
    assert [a["label"] for a in answers] == [a["label"] for a in expected[0]]
    for one, other in zip(answers, expected[0], strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)
    found = evaluate(str(classifier), str(file), out=str(tmp_path / "report"))
    assert {k: v for k, v in found.items() if k != "calibration_error"} == {
        k: v for k, v in expected[1].items() if k != "calibration_error"
    }
    assert found["calibration_error"] == pytest.approx(expected[1]["calibration_error"], abs=1e-6)
    lines = (tmp_path / "report" / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == [a["label"] for a in answers]
    monkeypatch.setattr("keel.stages.embed.GROUP_SIZE", size)
    result = embed(str(finished_run), str(file), str(tmp_path / "v.npy"))
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (30, result["width"])
    from keel import load

    texts = [line.split("\t")[0] for line in file.read_text().splitlines()[1:]]
    assert np.abs(vectors - load(finished_run).embed(texts)).max() < 1e-5


def test_a_bad_row_at_the_end_is_told_before_the_first_answer(
    keel: Command, one_line: Callable[..., str], classifier: Path, tmp_path: Path
) -> None:
    file = table(tmp_path / "a.tsv", rows=3000, words=2)
    with file.open("a") as lines:
        lines.write("\tgull\n")
    assert "a.tsv, line 3002: empty text (1 such rows in all)" in one_line(keel("predict", classifier, "--file", file))


def test_a_corpus_is_built_in_512_megabytes(tokenizer_path: Path, tmp_path: Path) -> None:
    """The command and its workers, the largest of them, whatever the size of the text."""
    peaks = []
    for repeats in (1000, 16_000):
        source = tmp_path / f"{repeats}.txt"
        with source.open("w") as file:
            for n in range(repeats):
                file.write(f"{'The old captain remembers the harbour near the island. ' * 40}{n}\n\n")
        command = ["corpus", "build", source, "--tokenizer", tokenizer_path, "--workers", 2, "--quiet"]
        peaks.append(peak(*command, "--out", tmp_path / f"corpus-{repeats}"))
    assert source.stat().st_size > 32 << 20
    assert peaks[1] < 512, peaks
    assert peaks[1] - peaks[0] < 100, peaks
