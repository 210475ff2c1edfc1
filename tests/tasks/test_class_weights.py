"""`class_weights: auto` is scikit-learn's "balanced"; and a run that learned nothing is called so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from keel.stages.finetune import finetune
from keel.tasks.classify import Classify, ClassifyConfig
from keel.text.labelled import LabelledData
from keel.values import Examples


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from("abcde"), min_size=2, max_size=60).filter(lambda labels: len(set(labels)) > 1))
def test_weights_are_scikit_learns(tmp_path_factory: pytest.TempPathFactory, labels: list[str]) -> None:
    path = tmp_path_factory.mktemp("weights") / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"text {n}\t{label}\n" for n, label in enumerate(labels)))
    task = Classify(ClassifyConfig(class_weights="auto"), LabelledData())
    fitted = task.fit_labels(Examples.of(task.open(str(path))).examples)
    names = np.unique(labels)
    expected = compute_class_weight("balanced", classes=names, y=np.array(labels))
    assert fitted.config.class_weights == pytest.approx(dict(zip(names, expected, strict=True)))


@pytest.mark.parametrize("rate, nothing", [("1e-9", True), ("3e-3", False)])
def test_a_run_that_learned_nothing_is_called_so(
    finished_run: Path, labelled: Callable[[str, int, int], Path], tmp_path: Path, rate: str, nothing: bool
) -> None:
    """One label for every text, whatever it says, is not an answer."""
    train, dev = (str(labelled("classify", seed, count)) for seed, count in ((1, 240), (2, 60)))
    changes = ["data.length=48", "training.epochs=4", "training.precision=fp32", f"training.learning_rate={rate}"]
    changes += ["training.weight_decay=0", "training.warmup=0"]
    out = str(tmp_path / "o")
    found = finetune(str(finished_run), "classify", train=train, dev=dev, out=out, overrides=changes, quiet=True)
    lines = (tmp_path / "o" / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    answers = {json.loads(line)["label"] for line in lines}
    assert found["learned_nothing"] is (len(answers) == 1)
    assert found["learned_nothing"] is nothing
