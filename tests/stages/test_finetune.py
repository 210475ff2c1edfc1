"""The model that fine-tuning leaves behind is the best on the development data, and everything it says is about it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from keel.files.folders import sha256
from keel.stages.evaluate import evaluate
from keel.stages.finetune import finetune
from keel.stages.predict import predict


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The development data contradict the training data: the more is learned, the lower is the score."""
    folder, source = tmp_path_factory.mktemp("contrary"), random.Random(3)
    for name, rows, labels in (("train", 60, ("yes", "no")), ("dev", 30, ("no", "yes"))):
        lines = []
        for _ in range(rows):
            which = source.randrange(2)
            lines.append(f"{('every gull', 'a young sailor')[which]} {source.randrange(99)}\t{labels[which]}")
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return str(folder / "train.tsv"), str(folder / "dev.tsv")


def run(model: Path, files: tuple[str, str], out: Path, *overrides: str, **options: Any) -> dict[str, Any]:
    fixed = ["training.precision=fp32", "data.length=24", "training.learning_rate=2e-3", "training.epochs=6"]
    data = {"train": files[0], "dev": files[1], "out": str(out)}
    return finetune(str(model), "classify", **data, overrides=[*fixed, *overrides], quiet=True, **options)


def scores(out: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["classify.accuracy"] for line in lines if line["kind"] == "evaluation"}


def test_the_best_is_kept_and_all_figures_are_its_own(
    finished_run: Path, files: tuple[str, str], tmp_path: Path
) -> None:
    said = list[str]()
    result = run(finished_run, files, tmp_path / "best", report=said.append)
    logged = scores(tmp_path / "best")
    best = max(logged, key=lambda step: (logged[step], step))
    assert best != max(logged), "the last is the best: this proves nothing"
    assert result["best_step"] == best and result["steps"] == max(logged)
    assert result["accuracy"] == max(logged.values())
    assert any(line.startswith(f"the model of step {best} is kept: accuracy") for line in said)
    again = evaluate(str(tmp_path / "best"), files[1])
    for name in ("accuracy", "macro_f1", "matthews"):
        assert again[name] == pytest.approx(result[name], abs=1e-12)
    written = [json.loads(line) for line in (tmp_path / "best" / "answers.jsonl").read_text().splitlines()]
    answers = predict(str(tmp_path / "best"), files[1])
    assert [one["label"] for one in written] == [one["label"] for one in answers]
    checkpoints = sorted(path.name for path in (tmp_path / "best" / "checkpoints").iterdir())
    assert f"step-{best:08d}" in checkpoints and f"step-{max(logged):08d}" in checkpoints


def test_the_last_is_kept_on_request(finished_run: Path, files: tuple[str, str], tmp_path: Path) -> None:
    result = run(finished_run, files, tmp_path / "last", "training.keep_best=false")
    logged = scores(tmp_path / "last")
    assert "best_step" not in result and result["accuracy"] == logged[max(logged)]


def test_resuming_a_finished_run_keeps_the_same_model(
    finished_run: Path, files: tuple[str, str], tmp_path: Path
) -> None:
    before = run(finished_run, files, tmp_path / "best")
    weights = sha256(tmp_path / "best" / "model.safetensors")
    after = run(finished_run, files, tmp_path / "best", resume=True)
    assert sha256(tmp_path / "best" / "model.safetensors") == weights
    assert {k: v for k, v in after.items() if k != "seconds"} == {k: v for k, v in before.items() if k != "seconds"}


def test_patience_ends_the_run_early(finished_run: Path, files: tuple[str, str], tmp_path: Path) -> None:
    result = run(finished_run, files, tmp_path / "early", "training.patience=1")
    logged = list(scores(tmp_path / "early").items())
    assert result["steps"] < 24
    assert logged[-1][1] == logged[-2][1] or logged[-1][1] <= max(score for _, score in logged[:-1])
