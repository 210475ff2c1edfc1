"""Members of one's own, each one file outside the package: they pass the contracts and run through the real command.

An encoder (`cnn.py`), an encoder with a bias on its attention scores (`relative.py`), a contrastive objective
(`simcse.py`), a task (`retrieve.py`) and a verb (`overlap.py`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
Command = Callable[..., subprocess.CompletedProcess[str]]
SHORT = ("training.steps=20", "training.batch_tokens=256", "training.evaluation_tokens=512", "training.log_steps=5")


def settings(*changes: str) -> list[str]:
    return [part for change in (*SHORT, "training.precision=fp32", *changes) for part in ("--set", change)]


def run(keel: Command, *arguments: object) -> dict[str, Any]:
    done = keel(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def write_recipe(folder: Path, text: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries and passages that share a noun and nothing else of use."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    nouns = ("keel", "mast", "harbour", "lanterns", "island", "captain", "sailor", "carpenter", "gull", "storm")
    rows = [f"where is the {noun}?\tthe old captain remembers the {noun} in winter" for noun in nouns]
    path.write_text("\n".join(["text\tpair", *rows]) + "\n", encoding="utf-8")
    return path


def test_an_encoder_is_pretrained_filled_and_fine_tuned(keel: Command, corpus_path: Path, tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path,
        f"plugins: [{HERE / 'cnn.py'}]\n"
        "model:\n"
        "  backbone: {kind: cnn, width: 32, layers: 2}\n"
        "  objectives: {masked_lm: {}, next_sentence: {}}\n"
        "data: {length: 32}\n",
    )
    model = tmp_path / "model"
    result = run(keel, "pretrain", recipe, "--corpus", corpus_path, "--out", model, *settings())
    assert result["step"] == 20 and result["masked_lm.loss"] < 6
    filled = run(keel, "--plugin", HERE / "cnn.py", "fill", model, "the old [MASK] watches the keel.")
    assert filled
    without = keel("fill", model, "the old [MASK].")
    assert without.returncode == 2 and "--plugin" in without.stderr and "cnn" in without.stderr
    labelled = tmp_path / "topics.tsv"
    labelled.write_text(
        "text\tlabel\n" + "".join(f"the {w} {n}\t{w}\n" for n in range(20) for w in ("ship", "gull")), encoding="utf-8"
    )
    given = ("--train", labelled, "--dev", labelled, "--out", tmp_path / "classifier", *settings("training.epochs=2"))
    tuned = run(keel, "finetune", model, "classify", *given, "--plugin", HERE / "cnn.py")
    assert tuned["dev_examples"] == 40
    resumed = keel("pretrain", model / "recipe.yaml", "--corpus", corpus_path, "--out", model, "--resume", "-q")
    assert resumed.returncode == 0, resumed.stderr  # the written recipe knows its plug-in


def test_an_encoder_with_a_bias_on_attention_scores(keel: Command, corpus_path: Path, tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path,
        "model:\n"
        f"  backbone: {{kind: {HERE / 'relative.py'}, width: 32, heads: 2, feed_forward: 48}}\n"
        "  objectives: {masked_lm: {}}\n"
        "data: {length: 32, packing: full-sentences}\n",
    )
    model = tmp_path / "model"
    result = run(keel, "pretrain", recipe, "--corpus", corpus_path, "--out", model, *settings())
    assert result["masked_lm.loss"] < 6
    import torch
    from safetensors.torch import load_file

    table = load_file(model / "model.safetensors")["bias.table.weight"]
    assert torch.isfinite(table).all() and table.std() > 0.02, "the bias learned nothing"


def test_simcse_sees_two_dropout_masks(keel: Command, corpus_path: Path, tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path,
        f"extends: bert-tiny\nplugins: [{HERE / 'simcse.py'}]\n"
        "model:\n"
        "  backbone: {layers: 1, width: 32, heads: 2, feed_forward: 48, positions: 64, dropout: 0.1}\n"
        "  objectives: {masked_lm: null, next_sentence: null, simcse: {}}\n"
        "data: {packing: single-sentences, length: 32}\n",
    )
    result = run(keel, "pretrain", recipe, "--corpus", corpus_path, "--out", tmp_path / "model", *settings())
    assert result["simcse.accuracy"] > 0.5, "without dropout a sentence is nearest to itself"
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    trained = [line["simcse.loss"] for line in lines if line["kind"] == "train"]
    assert trained[-1] < trained[0] and trained[0] > 1e-3, "the two views are not the same vectors"


def test_a_task_is_learned_evaluated_and_asked(
    keel: Command, finished_run: Path, pairs_file: Path, tmp_path: Path
) -> None:
    plugin = ("--plugin", HERE / "retrieve.py")
    out = tmp_path / "retriever"
    given = ("--train", pairs_file, "--dev", pairs_file, "--out", out)
    steps = settings("training.learning_rate=3e-3", "training.epochs=null", "training.steps=60")
    result = run(keel, "finetune", finished_run, "retrieve", *given, *steps, *plugin)
    assert result["primary_metric"] == "recall_at_1" and result["recall_at_1"] > 0.3  # by chance 0.1
    judged = run(keel, "evaluate", out, "--data", pairs_file, *plugin)
    assert judged["recall_at_1"] == result["recall_at_1"]
    asked = keel("predict", out, "where is the keel?", "--pair", "the keel of the ship", *plugin)
    assert asked.returncode == 0 and -1.01 <= json.loads(asked.stdout)["similarity"] <= 1.01
    by_path = keel("finetune", finished_run, HERE / "retrieve.py", *given[:-1], tmp_path / "other", *steps, "-q")
    assert by_path.returncode == 0, by_path.stderr


def test_a_verb_is_listed_and_runs(keel: Command, tokenizer_path: Path) -> None:
    plugin = ("--plugin", HERE / "overlap.py")
    assert "Count the tokens that two tokenizers share." in keel("--help", *plugin).stdout
    result = run(keel, "overlap", tokenizer_path, tokenizer_path, *plugin)
    assert result["shared"] == result["first"] == result["second"] > 0
    assert keel("overlap", tokenizer_path, tokenizer_path).returncode == 2


@pytest.mark.parametrize(
    ("room", "name", "file"),
    [
        ("backbone", "cnn", "cnn.py"),
        ("backbone", "relative", "relative.py"),
        ("objective", "simcse", "simcse.py"),
        ("task", "retrieve", "retrieve.py"),
    ],
)
def test_the_contracts_hold(room: str, name: str, file: str) -> None:
    """In a process of its own: plug-ins stay out of the other tests' catalog."""
    checks = {
        "backbone": f"check_backbone('{name}')",
        "objective": f"check_objective('bert', '{name}')",
        "task": f"check_task('bert', '{name}')",
    }
    code = f"import keel\nkeel.add_plugin({str(HERE / file)!r})\nfrom keel.testing.contracts import *\n{checks[room]}\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_guide_is_all_one_needs(keel: Command, corpus_path: Path, tmp_path: Path) -> None:
    """What docs/guide/extending.md prints passes the checks it names, and trains through the real command."""
    page = (HERE.parents[1] / "docs" / "guide" / "extending.md").read_text(encoding="utf-8")
    files = re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["neighbours.py", "neighbours.yaml", "spot.py"]
    for name, body in files:
        (tmp_path / name).write_text(body, encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code += "from keel.testing.contracts import check_objective\n"
    code += "keel.add_plugin('spot.py')\ncheck_objective('bert', 'spot')\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    settings = ("--set", "training.steps=3", "--set", "model.objectives.spot={}", "--plugin", "spot.py")
    for precision in ("fp32", "bf16"):
        options = ("--corpus", corpus_path, "--out", precision, *settings, "--set", f"training.precision={precision}")
        done = keel("pretrain", "neighbours.yaml", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "spot" in done.stdout
