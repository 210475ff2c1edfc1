"""Several settings and seeds: means and deviations over what really ran, the best on dev in the folder, no repeats."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

import keel
from keel.cli.main import run
from keel.comparing import grid
from keel.comparing.grid import SEARCH, search
from keel.files.folders import sha256, verify_folder
from keel.finetuning.results import RESULT
from keel.stages.evaluate import evaluate

Labelled = Callable[[str, int, int], Path]


@pytest.fixture
def files(labelled: Labelled, tmp_path: Path) -> dict[str, str]:
    """Training and development files of `labelled`; the pairs of who and where in dev never meet in train."""
    pairs = (("captain", "harbour"), ("sailor", "island"), ("carpenter", "mast"), ("gull", "keel"))
    met = [f"{who} remembers the {where}" for who, where in pairs]
    paths = {}
    for file, seed, count in (("train", 1, 200), ("dev", 2, 160)):
        header, *rows = labelled("classify", seed, count).read_text().splitlines()
        kept = [row for row in rows if any(pair in row for pair in met) == (file == "dev")]
        path = tmp_path / f"{file}.tsv"
        path.write_text("\n".join([header, *kept]) + "\n")
        paths[file] = str(path)
    return paths


def test_a_grid_with_seeds(finished_run: Path, files: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "best"
    arguments = {
        **files,
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


def test_the_command_keeps_the_best_run_of_the_best_setting(
    finished_run: Path, files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--grid, narrowed by --try to one batch size and two rates: every figure of the printed table is measured once
    more, from the saved models; the folder holds, byte for byte, the best run of the setting with the highest mean."""
    out, dev = tmp_path / "best", files["dev"]
    words = ["finetune", str(finished_run), "classify", "--train", files["train"], "--dev", dev]
    words += ["--out", str(out), "--seeds", "2", "--quiet", "--length", "32"]
    words += ["--set", "training.precision=fp32", "--set", "task.pooling=mean"]
    words += ["--grid", "--try", "training.batch_size=16", "--set", "training.epochs=4"]
    assert run([*words, "--try", "training.learning_rate=1e-9,3e-3"]) == 0
    printed = capsys.readouterr().out
    setting = "training.batch_size=16 training.learning_rate={}"
    lines = [line.removeprefix(setting.format(rate)) for rate in ("1e-9", "3e-3") for line in printed.splitlines()]
    rows = [line.split()[:2] for line in lines if line.startswith("  ") and len(line.split()) == 4]
    found = {place.name: evaluate(str(place), dev) for place in sorted((out / "runs").iterdir())}
    assert list(found) == ["01-seed-1", "01-seed-2", "02-seed-1", "02-seed-2"]
    scores = [found[name]["accuracy"] for name in found]
    settings = [scores[:2], scores[2:]]
    assert {found[name]["examples"] for name in found} == {len(Path(dev).read_text().splitlines()) - 1}
    means = [statistics.fmean(of) for of in settings]
    assert [tuple(map(float, row)) for row in rows] == [
        pytest.approx((mean, statistics.stdev(of)), rel=1e-3) for mean, of in zip(means, settings, strict=True)
    ], printed
    assert means[1] > means[0] + 0.1, "the second setting is the better one"
    assert re.search(rf"^best +{setting.format('3e-3')} *$", printed, re.MULTILINE), printed
    weights = {name: sha256(out / "runs" / name / "model.safetensors") for name in found}
    assert len(set(weights.values())) == 4
    best = max(list(found)[2:], key=lambda name: found[name]["accuracy"])
    assert sha256(out / "model.safetensors") == weights[best]
    assert verify_folder(out) == verify_folder(out / "runs" / best)
    assert evaluate(str(out), dev)["accuracy"] == found[best]["accuracy"] == max(scores[2:])


def test_the_mean_decides_and_not_the_luckiest_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Scores 0.9 and 0.1 against 0.6 and 0.7: the second setting is chosen, and its better run adopted."""
    scores = {"01-seed-1": 0.9, "01-seed-2": 0.1, "02-seed-1": 0.6, "02-seed-2": 0.7}

    def instead(_: str, __: str, place: Path, *___: object) -> dict[str, object]:
        place.mkdir(parents=True)
        (place / "model.safetensors").write_text(place.name)
        score = scores[place.name]
        return {"primary_metric": "f1", "f1": score, "learned_nothing": False, "seconds": 1, "run": str(place)}

    monkeypatch.setattr(grid, "_one_run", instead)
    result = search("m", "tag", out=str(tmp_path / "o"), tries=["training.epochs=1,2"], seeds=2, train="t")
    assert result["best"]["settings"] == "training.epochs=2" and result["best"]["mean"] == pytest.approx(0.65)
    assert (tmp_path / "o" / "model.safetensors").read_text() == "02-seed-2"


@pytest.mark.parametrize(("frozen", "automatic"), [(False, 1e-3), (True, 1e-3)])
def test_the_option_grid_tries_rates_around_the_automatic_one(
    finished_run: Path,
    frozen: bool,
    automatic: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Devlin et al. 2019, appendix A.3: batches of 16 and 32; rates within a factor of two of the middle one."""
    asked: list[list[str]] = []
    monkeypatch.setattr(grid, "search", lambda *_, tries, **__: asked.append(tries) or {"settings": []})
    words = ["finetune", str(finished_run), "classify", "--train", "t.tsv", "--out", "o", "--grid", "--json"]
    words += ["--set", f"encoder.frozen={str(frozen).lower()}"]
    assert run([*words, "--try", "training.warmup=0,0.1"]) == 0
    (tries,) = asked
    values = {key: [float(value) for value in given.split(",")] for key, given in (line.split("=") for line in tries)}
    assert values["training.batch_size"] == [16, 32]
    assert values["training.learning_rate"] == [automatic / 2, automatic, automatic * 2]
    assert values["training.warmup"] == [0, 0.1] and json.loads(capsys.readouterr().out) == {"settings": []}
