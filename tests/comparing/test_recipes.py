"""`keel compare pretraining`: the table is that of the runs, a stopped comparison resumes, mistakes are one line."""

from __future__ import annotations

import json
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keel.comparing import jobs
from keel.comparing.recipes import compare_pretraining
from keel.comparing.tasks import LabelledTask
from keel.errors import Stopped, UserError

SMALL = [
    *("model.backbone.layers=1", "model.backbone.width=32", "model.backbone.heads=2", "model.backbone.feed_forward=48"),
    *("data.length=32", "training.batch_tokens=256", "training.evaluation_tokens=512", "training.precision=fp32"),
    "training.evaluate_steps=2",
]


MEN, THINGS = ("captain", "sailor", "carpenter"), ("keel", "mast", "harbour")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """train.tsv and dev.tsv: 27 sentences each, none in both, labelled by whether they tell of a man or of a thing."""
    folder = tmp_path / "data"
    folder.mkdir()
    verbs, ends = ("watches", "remembers", "follows"), ("at dawn", "in winter", "near the island")
    rows = [
        f"the {noun} {verb} {end}\t{'man' if noun in MEN else 'thing'}"
        for noun in (*MEN, *THINGS)
        for verb in verbs
        for end in ends
    ]
    for file, part in (("train", rows[::2]), ("dev", rows[1::2])):
        (folder / f"{file}.tsv").write_text("\n".join(["text\tlabel", *part]) + "\n")
    return folder


def accuracy(answers: Path, dev: Path) -> float:
    """Counted from the answers of a run and the labels of a file."""
    labels = [line.split("\t")[1] for line in dev.read_text().splitlines()[1:]]
    given = [json.loads(line)["label"] for line in answers.read_text().splitlines()]
    return statistics.fmean(a == b for a, b in zip(given, labels, strict=True))


def cells(page: str, title: str) -> list[list[str]]:
    """The rows of the table below this heading of a page, as text."""
    table = page[page.index(f"<h2>{title}</h2>") :].split("</table>")[0].split("<tbody>")[1]
    return [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in table.split("</tr>")[:-1]]


def options(corpus: Path, data: Path, out: Path, **more: Any) -> dict[str, Any]:
    settings = ["training.learning_rate=3e-3", "training.precision=fp32", "toy:training.epochs=2", "x:y=1"]
    task = LabelledTask.parse(f"toy=classify:{data}/train.tsv:{data}/dev.tsv", settings)
    assert task.overrides == ("training.learning_rate=3e-3", "training.precision=fp32", "training.epochs=2")
    given = {"tokens": 1000, "seeds": 2, "task_seeds": 2, "tasks": [task], "overrides": SMALL, "quiet": True}
    return {"corpus": str(corpus), "out": str(out), **given, **more}


def test_the_table_is_that_of_the_runs(corpus_path: Path, data: Path, tmp_path: Path) -> None:
    names = ["bert-mini", "electra-mini", "gpt-mini"]
    out = tmp_path / "o"
    given = options(corpus_path, data, out)
    learning = ("training.epochs=20", "training.batch_size=8", "task.pooling=mean")
    given["tasks"] = [replace(task, overrides=(*task.overrides, *learning)) for task in given["tasks"]]
    result = compare_pretraining(names, **given)
    assert {row["recipe"] for row in result["recipes"]} == set(names)
    assert [run["recipe"] for run in result["runs"]] == names * 2, "recipes take turns"
    page = (out / "report.html").read_text()
    shown = {row[0]: row[1:3] for row in cells(page, "Recipes, best first")}
    for row in result["recipes"]:
        places = [out / f"{row['recipe']}-seed-{seed}" / f"toy-{n}" for seed in (1, 2) for n in (1, 2)]
        scores = [accuracy(place / "answers.jsonl", data / "dev.tsv") for place in places]
        stored = [json.loads((place / "result.json").read_text())["accuracy"] for place in places]
        assert stored == pytest.approx(scores)
        mean, deviation = statistics.fmean(scores), statistics.stdev(scores)
        assert row["tasks"]["toy"]["mean"] == row["mean_score"] == pytest.approx(mean)
        assert row["tasks"]["toy"]["deviation"] == pytest.approx(deviation)
        assert shown[row["recipe"]] == [f"{mean:.4f}\u00a0±\u00a0{deviation:.4f}", f"{mean:.3f}"]
        assert 1000 - 256 < row["tokens"] <= 1000 + 256 and row["parameters"] > 1000
    means = [row["mean_score"] for row in result["recipes"]]
    assert means == sorted(means, reverse=True) and list(shown) == [row["recipe"] for row in result["recipes"]]
    assert means[0] > 0.8, "the best has learnt what holds for sentences that it has not seen"
    assert all(name in page for name in names) and page.count("<svg") >= 3
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_one_eval_recipe_scores_all_on_the_same_rows(corpus_path: Path, tmp_path: Path) -> None:
    """Two recipes that differ in what they mask have, at the same weights, the same loss under one eval recipe."""
    from keel.stages.pretrain import pretrain

    found = {}
    names = ("roberta-mini", "bert-mini-span", "electra-mini", "macbert-mini")
    for name in names:
        for eval_recipe in (None, "roberta-mini"):
            changes = [*SMALL, "training.steps=1", "training.learning_rate=1e-12"]
            changes += [f"data.eval_recipe={eval_recipe}"] if eval_recipe else []
            out = str(tmp_path / f"{name}-{eval_recipe}")
            done = pretrain(name, corpus=str(corpus_path), out=out, overrides=changes, quiet=True)
            found[name, eval_recipe] = done
    judged = [found[name, "roberta-mini"]["masked_lm.loss"] for name in ("roberta-mini", "bert-mini-span")]
    own = [found[name, None]["masked_lm.loss"] for name in ("roberta-mini", "bert-mini-span")]
    assert judged[0] == pytest.approx(judged[1], rel=1e-6) and own[0] != pytest.approx(own[1], rel=1e-6)
    assert "masked_lm.loss" in found["macbert-mini", "roberta-mini"]
    assert "replaced_token.loss" in found["electra-mini", "roberta-mini"], (
        "it has no objective in common with the eval recipe"
    )


def test_a_stopped_comparison_is_resumed(
    corpus_path: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, out = ["bert-mini", "roberta-mini"], tmp_path / "o"
    given = options(corpus_path, data, out, seeds=1, task_seeds=1)
    real, done = jobs.finetune, []

    def stopping(*args: Any, **more: Any) -> Any:
        done.append(args)
        if len(done) == 2:
            raise Stopped("now")
        return real(*args, **more)

    monkeypatch.setattr(jobs, "finetune", stopping)
    with pytest.raises(UserError, match="there is no comparison to"):
        compare_pretraining(names, **given, resume=True)
    with pytest.raises(Stopped, match="--resume"):
        compare_pretraining(names, **given)
    first = (out / "bert-mini-seed-1" / "model" / "model.safetensors").stat().st_mtime_ns
    with pytest.raises(UserError, match="already contains a comparison; add --resume"):
        compare_pretraining(names, **given)
    with pytest.raises(UserError, match="other members, data or settings"):
        compare_pretraining(names, **(given | {"overrides": []}), resume=True)
    result = compare_pretraining(names, **given, resume=True)
    assert len(done) == 3 and len(result["runs"]) == 2, "the finished fine-tuning was not repeated"
    assert (out / "bert-mini-seed-1" / "model" / "model.safetensors").stat().st_mtime_ns == first
    again = compare_pretraining(names, **given, resume=True)
    assert again["recipes"] == result["recipes"] and len(done) == 3
    more = compare_pretraining(names, **(given | {"task_seeds": 2}), resume=True)
    assert len(done) == 5, "only the second turn of each was missing"
    assert [row["tasks"]["toy"]["count"] for row in more["recipes"]] == [2, 2]
    for file in (data / "train.tsv", data / "dev.tsv"):
        before = file.read_text()
        file.write_text(before + "a young keel\tthing\n")
        with pytest.raises(UserError, match=rf"{file.name} has changed since the comparison"):
            compare_pretraining(names, **(given | {"task_seeds": 3}), resume=True)
        file.write_text(before)
    (out / "plan.json").write_text("{")
    with pytest.raises(UserError, match=r"plan\.json: damaged"):
        compare_pretraining(names, **given, resume=True)


def test_runs_at_once_give_what_they_give_in_turn(corpus_path: Path, data: Path, tmp_path: Path) -> None:
    names, few = ["bert-mini", "roberta-mini"], {"seeds": 1, "task_seeds": 1}
    in_turn = compare_pretraining(names, **options(corpus_path, data, tmp_path / "a", **few, threads=1))
    at_once = compare_pretraining(names, **options(corpus_path, data, tmp_path / "b", **few, threads=2, at_once=2))
    for one, other in zip(in_turn["runs"], at_once["runs"], strict=True):
        assert one["held_out"] == other["held_out"] and one["recipe"] == other["recipe"]
        answers = [(Path(run["model"]).parent / "toy-1" / "answers.jsonl").read_text() for run in (one, other)]
        assert answers[0] == answers[1]
    with pytest.raises(UserError, match="only 2 threads to share"):
        compare_pretraining(names, **options(corpus_path, data, tmp_path / "c", threads=2, at_once=3))


@pytest.mark.clock
def test_a_comparison_by_the_clock_can_be_stopped_from_outside(corpus_path: Path, tmp_path: Path) -> None:
    """Timed runs have processes of their own: the signal reaches all, they save, and --resume goes on inside them."""
    changes = [word for change in SMALL for word in ("--set", change)]
    out = tmp_path / "o"
    command = [sys.executable, "-c", "from keel.cli.main import main; main()", "compare", "pretraining", "bert-mini"]
    command += ["roberta-mini", "gpt-mini", "--corpus", str(corpus_path), "--budget", "12s", "--out", str(out)]
    command += ["--at-once", "2", "--threads", "2", "--quiet", *changes]
    # As in a terminal: a shell that starts something in the background lets all below it ignore Ctrl-C.
    running = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    models = [out / f"{name}-seed-1" / "model" for name in ("bert-mini", "roberta-mini")]
    until = time.monotonic() + 60
    while not all(_is_training(model) for model in models) and time.monotonic() < until:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    message = running.communicate(timeout=60)[1]
    assert running.returncode == 0 and "the same command and --resume" in message and "Traceback" not in message
    assert all(len(list((model / "checkpoints").glob("step-*"))) == 1 for model in models)
    assert not (out / "gpt-mini-seed-1").exists(), "nothing more is begun"
    done = subprocess.run([*command, "--resume"], stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    runs = json.loads((out / "comparison.json").read_text())["runs"]
    assert [run["recipe"] for run in runs] == ["bert-mini", "roberta-mini", "gpt-mini"]
    assert all(8 < run["seconds"] <= 12.5 for run in runs)


def _is_training(model: Path) -> bool:
    metrics = model / "metrics.jsonl"
    return metrics.is_file() and '"train"' in metrics.read_text()


def test_mistakes_are_said_before_anything_is_trained(corpus_path: Path, data: Path, tmp_path: Path) -> None:
    given = options(corpus_path, data, tmp_path / "o")
    for names, change, message in (
        (["bert-mini"], {}, "two different recipes"),
        (["bert-mini", "bert-mini"], {}, "two different recipes"),
        (["bert-mini", "bert-mino"], {}, "no recipe called 'bert-mino'"),
        (["bert-mini", "gpt-mini"], {"tokens": None}, "give one budget for all recipes"),
        (["bert-mini", "gpt-mini"], {"budget": "1m"}, "give one budget for all recipes"),
        (["bert-mini", "gpt-mini"], {"tokens": None, "budget": "soon"}, "'soon' is not a time"),
        (["bert-mini", "gpt-mini"], {"corpus": str(tmp_path)}, str(tmp_path)),
        (["bert-mini", "gpt-mini"], {"tasks": [LabelledTask("t", "classify", "no.tsv", "no.tsv")]}, "no.tsv: no such"),
        (["bert-mini", "gpt-mini"], {"tasks": [LabelledTask("t", "clasify", "no.tsv", "no.tsv")]}, "clasify"),
    ):
        with pytest.raises(UserError, match=message):
            compare_pretraining(names, **(given | change))
        assert not (tmp_path / "o").exists()
    for wrong in ("classify:a:b", "x=classify:a", "=classify:a:b", "x=classify::b"):
        with pytest.raises(UserError, match="expected NAME=KIND:TRAIN:DEV"):
            LabelledTask.parse(wrong)
