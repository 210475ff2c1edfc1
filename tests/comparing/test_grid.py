"""Several settings and seeds: means and deviations over what really ran, the best on dev in the folder, no repeats."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

import keel
from keel.comparing.grid import SEARCH, search
from keel.finetuning.results import RESULT

Labelled = Callable[[str, int, int], Path]


def test_a_grid_with_seeds(finished_run: Path, labelled: Labelled, tmp_path: Path) -> None:
    out = tmp_path / "best"
    arguments = {
        "train": str(labelled("classify", 1, 160)),
        "dev": str(labelled("classify", 2, 40)),
        "out": str(out),
        "overrides": ["data.length=32", "training.precision=fp32", "training.epochs=6", "task.pooling=mean"],
        "tries": ["training.learning_rate=3e-3,1e-9"],
        "seeds": 2,
        "quiet": True,
    }
    result = search(str(finished_run), "classify", **arguments)
    good, hopeless = result["settings"]
    assert "3e-3" in good["settings"] and good["mean"] > 0.9 > hopeless["mean"]
    for row in result["settings"]:
        assert row["mean"] == pytest.approx(statistics.fmean(row["scores"]))
        assert row["deviation"] == pytest.approx(statistics.stdev(row["scores"]))
    assert result["best"] == good
    model = keel.load(str(out))
    assert model.predict(["The gull remembers the mast at dawn."])[0]["label"] == "gull"
    runs = sorted((out / "runs").iterdir())
    assert len(runs) == 4
    times = [path.stat().st_mtime_ns for path in out.glob(f"runs/*/{RESULT}")]
    assert search(str(finished_run), "classify", **arguments, resume=True)["settings"] == result["settings"]
    assert times == [path.stat().st_mtime_ns for path in out.glob(f"runs/*/{RESULT}")], "finished runs are not repeated"
    assert json.loads((out / SEARCH).read_text())["best"]["settings"] == good["settings"]


def test_the_option_grid_tries_what_is_recommended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Devlin et al. 2019, appendix A.3: batches of 16 and 32, rates of 5e-5, 3e-5 and 2e-5, 2 to 4 epochs."""
    from keel.cli.main import run
    from keel.comparing import grid

    asked: list[list[str]] = []
    monkeypatch.setattr(grid, "search", lambda *_, tries, **__: asked.append(tries) or {"settings": []})
    words = ["finetune", "m", "classify", "--train", "t.tsv", "--out", "o", "--grid", "--json"]
    assert run([*words, "--try", "training.warmup=0,0.1"]) == 0
    (tries,) = asked
    values = {key: [float(value) for value in given.split(",")] for key, given in (line.split("=") for line in tries)}
    assert values["training.batch_size"] == [16, 32] and values["training.learning_rate"] == [5e-5, 3e-5, 2e-5]
    assert values["training.epochs"] == [3, 4], "of the published 2 to 4"
    assert values["training.warmup"] == [0, 0.1] and json.loads(capsys.readouterr().out) == {"settings": []}
