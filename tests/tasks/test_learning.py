"""Every kind of task is learnt from a file, saved, opened again, and asked; and `transformers` opens the folder too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import keel
from keel.learner.windows import outputs, to_rows
from keel.stages.evaluate import evaluate
from keel.values import Examples

KINDS = ("classify", "regress", "tag", "answer", "choose")
PRIMARY = {"classify": "accuracy", "regress": "spearman", "tag": "f1", "answer": "f1", "choose": "accuracy"}
# What guessing gives: 1/4, no correlation, few entities, 1 word in 7, 1/3.
BARS = {"classify": 0.9, "regress": 0.5, "tag": 0.9, "answer": 0.7, "choose": 0.6}
FROZEN = ("encoder.frozen=true", "encoder.layers=mix", "task.pooling=mean", "training.learning_rate=0.05")
Teach = Callable[..., tuple[Path, dict[str, Any]]]
Labelled = Callable[[str, int, int], Path]


@pytest.mark.parametrize("kind", KINDS)
def test_the_task_is_learnt_and_survives_the_disk(kind: str, taught: Teach, labelled: Labelled) -> None:
    out, figures = taught(kind)
    primary = figures["primary_metric"]
    assert primary == PRIMARY[kind] and figures[primary] >= BARS[kind], figures
    again = evaluate(str(out), str(labelled(kind, 2, 60)))
    assert again[primary] == pytest.approx(figures[primary], abs=1e-6)
    lines = (out / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 60 and all("gold" in json.loads(line) for line in lines)
    assert "<svg" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_does_not_depend_on_order_or_neighbours(kind: str, taught: Teach, labelled: Labelled) -> None:
    model = keel.load(str(taught(kind)[0]))
    examples = Examples.of(model.task.open(str(labelled(kind, 3, 20)))).examples
    windows, _ = model.task.windows(examples, model.tokenizer)
    together = outputs(model.learner, windows, model.tokenizer)
    backwards = outputs(model.learner, windows[::-1], model.tokenizer)[::-1]
    alone = [outputs(model.learner, [window], model.tokenizer)[0] for window in windows]
    for a, b, c in zip(together, backwards, alone, strict=True):
        assert np.abs(a - b).max() <= 1e-5 and np.abs(a - c).max() <= 1e-5


AUTO = {
    "classify": "AutoModelForSequenceClassification",
    "regress": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "answer": "AutoModelForQuestionAnswering",
    "choose": "AutoModelForMultipleChoice",
}


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_opens_the_folder_and_gives_the_same_logits(kind: str, taught: Teach, labelled: Labelled) -> None:
    import transformers

    out, _ = taught(kind)
    theirs, loading = getattr(transformers, AUTO[kind]).from_pretrained(out, output_loading_info=True)
    assert not {what: names for what, names in loading.items() if names}
    theirs.eval()
    model = keel.load(str(out))
    examples = Examples.of(model.task.open(str(labelled(kind, 3, 8)))).examples
    windows, _ = model.task.windows(examples, model.tokenizer)
    (objective,) = model.learner.objectives.values()
    for window in windows:
        ids, segments = torch.from_numpy(window.ids)[None], torch.from_numpy(window.segments)[None]
        if kind == "choose":
            ids, segments = ids[None], segments[None]
        with torch.no_grad():
            batch = model.learner.prepare(to_rows([window]), model.tokenizer)
            ours = objective.logits if kind == "tag" else objective.predict
            found = ours(model.learner.encoder(), batch)
            given = theirs(input_ids=ids, token_type_ids=segments)
        if kind == "answer":
            wanted = torch.stack([given.start_logits[0], given.end_logits[0]], 1)
        elif kind == "tag":
            wanted = given.logits[0][batch.targets["tag.places"]]
        else:
            wanted = given.logits
        assert float((found - wanted).abs().max()) <= 1e-5
    if kind in ("classify", "tag"):
        assert list(theirs.config.id2label.values()) == model.task.config.labels


@pytest.mark.parametrize(
    "kind, overrides",
    [
        ("classify", ("task.pooling=mean",)),
        ("classify", ("task.pooling=attention", "task.label_smoothing=0.1", "task.class_weights=auto")),
        ("tag", ("task.crf=true", "task.scheme=bioes")),
        ("classify", FROZEN),
        ("tag", ("encoder.frozen=true", "encoder.layers=last-four", "training.learning_rate=0.02")),
        ("classify", ("encoder.layer_decay=0.8", "encoder.reinit_layers=1")),
    ],
)
def test_other_ways_learn_too_and_come_back_the_same(
    kind: str, overrides: tuple[str, ...], taught: Teach, labelled: Labelled
) -> None:
    out, figures = taught(kind, *overrides)
    primary = figures["primary_metric"]
    assert figures[primary] > 0.6, figures
    assert evaluate(str(out), str(labelled(kind, 2, 60)))[primary] == pytest.approx(figures[primary], abs=1e-6)


def test_a_frozen_encoder_does_not_change(taught: Teach, finished_run: Path) -> None:
    out, _ = taught("classify", *FROZEN)
    before, after = keel.load(str(finished_run)).learner.backbone, keel.load(str(out)).learner
    for name, tensor in after.backbone.state_dict().items():
        assert torch.equal(tensor, before.state_dict()[name]), name
    assert after.frozen is not None and after.frozen.read is not None
    assert float(after.frozen.read.weights.detach().abs().sum()) > 0


def test_what_python_gives_is_answered(taught: Teach) -> None:
    (label,) = keel.load(str(taught("classify")[0])).predict(["The gull remembers the mast at dawn."])
    assert label["label"] == "gull" and sum(label["probabilities"].values()) == pytest.approx(1)
    text = "The sailor 😀 remembers the island at dawn."
    (tags,) = keel.load(str(taught("tag")[0])).predict([text])
    for entity in tags["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"]
    context = "The captain remembers the keel at dawn."
    (answer,) = keel.load(str(taught("answer")[0])).predict([("Who remembers?", context)])
    assert context[answer["start"] : answer["end"]] == answer["answer"] and answer["best"]
    (choice,) = keel.load(str(taught("choose")[0])).predict([("The gull remembers the mast.", ["sailor", "gull"])])
    assert choice["text"] in ("sailor", "gull")
    (value,) = keel.load(str(taught("regress")[0])).predict([("The gull.", "The gull.")])
    assert isinstance(value["value"], float)
