"""What a head is worth equals a plain reference: transformers, with the head's output set to zero by a hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from explain_cases import CASES, MASKED, Case, asked, check_best
from plain_reference import Row, without_heads

from keel.inference.model import Model


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_head_that_is_off_changes_the_answer_as_in_transformers(case: Case, family: Callable[..., Any]) -> None:
    ours, theirs, projections = asked(family, case)
    found = ours.explain(case.texts[0], *case.texts[1:], method="heads")
    row = Row(theirs, found.reading.ids, found.reading.window.segments if case.segments else None)
    score = case.score(found, "probability")
    expected = without_heads(row, projections, 4, score)
    with torch.no_grad():
        output = row.output()
        value = float(score(output))
    check_best(case, found, output)
    assert found.changes.shape == (3, 4) and found.value == pytest.approx(value, abs=1e-5)
    assert float(np.abs(found.changes - (expected - value)).max()) <= 1e-5
    assert float(np.abs(found.changes).max()) >= 1e-3, "these heads do nothing, so nothing was compared"


def test_without_an_answer_the_texts_vector_is_compared(minilm: Model, minilm_theirs: Any) -> None:
    found = minilm.explain("The ship sank.", method="heads")
    row = Row(minilm_theirs, found.reading.ids, found.reading.window.segments)
    with torch.no_grad():
        whole = row.output().last_hidden_state[0].mean(0)
    projections = [layer.attention.output.dense for layer in minilm_theirs.encoder.layer]
    expected = 1 - without_heads(
        row, projections, 12, lambda output: torch.cosine_similarity(output.last_hidden_state[0].mean(0), whole, 0)
    )
    assert found.changes.shape == (6, 12) and float(np.abs(found.changes - expected).max()) <= 1e-5
    assert found.answer["kind"] == "vector" and "cosine distance" in found.measure
    (layer, head, change), *_ = found.ranked()
    assert change == found.changes.max() == found.changes[layer - 1, head - 1]


def test_heads_are_ranked_by_size_whatever_their_sign(family: Callable[..., Any]) -> None:
    found = family("Bert").ours.explain(MASKED, method="heads")
    sizes = [abs(change) for _, _, change in found.ranked()]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) == 12
    plain = found.as_json()
    assert plain["shape"] == [3, 4] and np.array_equal(np.float32(plain["changes"]), found.changes)
    assert plain["answer"]["scale"] == "log-probability" and plain["value"] == found.value


@pytest.mark.parametrize("scale", ["logit", "log-probability", "probability"])
def test_the_scale_is_as_asked(scale: str, family: Callable[..., Any]) -> None:
    ours, theirs, _ = family("Bert", "ForSequenceClassification", num_labels=3)
    found = ours.explain("w3 w4", method="heads", label="LABEL_1", scale=scale)
    with torch.no_grad():
        logits = Row(theirs, found.reading.ids, None).output().logits[0]
    scaled = {"logit": logits, "probability": logits.softmax(0), "log-probability": logits.log_softmax(0)}
    assert found.value == pytest.approx(float(scaled[scale][1]), abs=1e-5)
