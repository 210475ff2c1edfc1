"""What an answer rests on equals plain references: integrated gradients in plain torch, finite differences, and for
occlusion the model asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from explain_cases import CASES, MASKED, TEXT, Case, asked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_reference import Row, integrated_gradients, slopes_by_differences

from keel.errors import UserError
from keel.inference.model import Model

PAD, MASK = 0, 4


def row_of(case: Case, theirs: Any, found: Any) -> Row:
    return Row(theirs, found.reading.ids, found.reading.window.segments if case.segments else None)


def moving(found: Any) -> np.ndarray:
    """The tokens of the text; neither framing nor the [MASK] that is asked about."""
    return np.array([not token.special for token in found.reading.tokens])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_integrated_gradients_are_those_of_the_definition(case: Case, family: Callable[..., Any]) -> None:
    ours, theirs, _ = asked(family, case)
    found = ours.explain(*case.texts, method="attribution", steps=8)
    row, score = row_of(case, theirs, found), case.score(found, "logit")
    expected, first, last = integrated_gradients(row, score, PAD, moving(found), 8)
    assert found.steps == 8 and found.baseline == "[PAD]"
    assert float(np.abs(found.scores - expected).max()) <= 1e-5
    assert found.value == pytest.approx(last, abs=1e-5) and found.baseline_value == pytest.approx(first, abs=1e-5)
    change = last - first
    assert found.completeness_gap * abs(change) == pytest.approx(abs(expected.sum() - change), abs=1e-5)
    assert not found.scores[~moving(found)].any() and np.abs(found.scores).max() > 1e-3


SMALL = [case for case in CASES if case.family in ("Bert", "ModernBert", "DebertaV2", "GPT2")]
words = st.lists(st.integers(0, 90), min_size=1, max_size=12).map(lambda ids: " ".join(f"w{id}" for id in ids))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=st.sampled_from(SMALL), text=words, baseline=st.sampled_from(["pad", "mask"]))
def test_gradients_sum_to_the_difference_of_the_scores(
    family: Callable[..., Any], case: Case, text: str, baseline: str
) -> None:
    ours = asked(family, case)[0]
    texts = {"ForMaskedLM": (f"[MASK] {text}",), "ForQuestionAnswering": (text, TEXT)}.get(case.kind, (text,))
    found = ours.explain(*texts, method="attribution", baseline=baseline)
    change = found.value - found.baseline_value
    assert float(found.scores.sum()) == pytest.approx(change, rel=0.01, abs=1e-5)
    assert float(found.word_scores.sum()) == pytest.approx(float(found.scores.sum()), abs=1e-5)
    assert found.completeness_gap <= 0.01 or abs(change) < 1e-3


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForSequenceClassification", "DebertaV2ForQuestionAnswering"])
def test_gradients_agree_with_finite_differences(family: Callable[..., Any], name: str) -> None:
    (case,) = (case for case in CASES if str(case) == name)
    ours, theirs, _ = asked(family, case)
    found = ours.explain(*case.texts, method="attribution", steps=8)
    row, score = row_of(case, theirs, found), case.score(found, "logit")
    theirs.double()
    try:
        expected = slopes_by_differences(row, score, PAD, moving(found), 8)
    finally:
        theirs.float()
    clear = np.abs(expected) > 1e-4
    assert clear.sum() >= 5 and np.array_equal(np.sign(found.scores[clear]), np.sign(expected[clear]))
    assert np.allclose(found.scores, expected, atol=1e-4)


def test_an_even_sum_along_the_line_gives_the_same(family: Callable[..., Any]) -> None:
    """The definition's integral by 150 midpoints, without the quadrature that Keel uses."""
    case = Case("Bert", "ForSequenceClassification")
    ours, theirs, _ = asked(family, case)
    found = ours.explain(*case.texts, method="attribution")
    row, score = row_of(case, theirs, found), case.score(found, "logit")
    midpoints = (np.arange(150) + 0.5) / 150 * 2 - 1, np.full(150, 2 / 150)
    expected, _, _ = integrated_gradients(row, score, PAD, moving(found), nodes=midpoints)
    assert np.allclose(found.scores, expected, atol=1e-3)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_occlusion_is_what_the_model_says_without_the_word(case: Case, family: Callable[..., Any]) -> None:
    ours, theirs, _ = asked(family, case)
    found = ours.explain(*case.texts, method="attribution", by="occlusion")
    row, score = row_of(case, theirs, found), case.score(found, "logit")
    ids = found.reading.ids
    with torch.no_grad():
        whole = float(score(row.output()))
        for number in np.flatnonzero(moving(found)):
            hidden = ids.copy()
            hidden[number] = MASK
            assert found.scores[number] == pytest.approx(whole - float(score(row.output(hidden))), abs=1e-5)
    assert found.value == pytest.approx(whole, abs=1e-5)
    assert found.baseline == "[MASK]" and found.steps is None and found.completeness_gap is None
    assert not found.scores[~moving(found)].any()


def test_all_tokens_of_a_word_are_occluded_together(minilm: Model, minilm_theirs: Any) -> None:
    """The cosine of mean-pooled vectors, as sentence-transformers compute it, when one word is hidden."""
    text, pair = "Unbelievably tokenization!", "A tokenizer."
    found = minilm.explain(text, pair, "attribution", by="occlusion")

    def vector(ids: Any) -> torch.Tensor:
        numbers = torch.tensor([[int(id) for id in ids]])
        return minilm_theirs(input_ids=numbers, attention_mask=torch.ones_like(numbers)).last_hidden_state[0].mean(0)

    with torch.no_grad():
        other = vector(minilm.explain(pair).reading.ids)
        whole = torch.cosine_similarity(vector(found.reading.ids), other, 0)
        assert [word.text for word in found.reading.words][:2] == ["Unbelievably", "tokenization"]
        for word, score in zip(found.reading.words, found.word_scores, strict=True):
            hidden = found.reading.ids.copy()
            hidden[list(word.tokens)] = minilm.tokenizer.mask
            assert score == pytest.approx(float(whole - torch.cosine_similarity(vector(hidden), other, 0)), abs=1e-5)
    assert any(len(word.tokens) > 1 for word in found.reading.words)


@pytest.mark.parametrize("baseline", ["pad", "mask", "zero"])
def test_the_baseline_is_what_its_name_says(baseline: str, family: Callable[..., Any]) -> None:
    case = Case("Bert", "ForMaskedLM")
    ours, theirs, _ = asked(family, case)
    found = ours.explain(MASKED, method="attribution", baseline=baseline, steps=16)
    row, score = row_of(case, theirs, found), case.score(found, "log-probability")
    id = {"pad": PAD, "mask": MASK, "zero": None}[baseline]
    expected, first, _ = integrated_gradients(row, score, id, moving(found), 16)
    assert np.allclose(found.scores, expected, atol=1e-5) and found.baseline_value == pytest.approx(first, abs=1e-5)
    assert found.baseline == {"pad": "[PAD]", "mask": "[MASK]", "zero": "zero"}[baseline]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"by": "lime"}, "no attribution by 'lime'; choose integrated-gradients or occlusion"),
        ({"steps": 0}, "0 steps: give 1 to 512"),
        ({"steps": 513}, "513 steps: give 1 to 512"),
        ({"baseline": "noise"}, "unknown baseline 'noise'; choose pad, mask, zero"),
        ({"by": "occlusion", "steps": 3}, "settings of integrated-gradients"),
        ({"scale": "percent"}, "unknown scale 'percent'; choose logit, log-probability, probability"),
        ({"label": "w3"}, "no label to explain; leave out --label"),
        ({"token": "w3 w4"}, "'w3 w4' is not one token of this model"),
        ({"token": "zebra"}, "'zebra' is not one token"),
        ({"colour": 1}, "the method attribution has no option 'colour'"),
    ],
)
def test_impossible_options_are_errors(family: Callable[..., Any], options: dict[str, Any], what: str) -> None:
    ours = family("Bert").ours
    with pytest.raises(UserError, match=what) as told:
        ours.explain(MASKED, method="attribution", **options)
    assert "\n" not in str(told.value)
