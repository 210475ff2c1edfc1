"""What each layer would answer is what the model's own head says about the hidden states of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from explain_cases import CASES, MASKED, Case, asked, places_of
from plain_reference import Row, answers_of_layers

from keel.errors import UserError
from keel.inference.model import Model

READ = [case for case in CASES if case.kind in ("ForMaskedLM", "ForSequenceClassification", "LMHeadModel")]
FINAL_NORMS = {"GPT2": "ln_f", "ModernBert": "final_norm"}


@pytest.mark.parametrize("case", READ, ids=str)
def test_every_layer_is_read_by_the_models_own_head(case: Case, family: Callable[..., Any]) -> None:
    ours, theirs, _ = asked(family, case)
    found = ours.explain(*case.texts, method="layers", top=97)
    row = Row(theirs, found.reading.ids, found.reading.window.segments if case.segments else None)
    name, places = FINAL_NORMS.get(case.family), places_of(case, found)
    outputs = answers_of_layers(row, name and getattr(theirs.base_model, name))
    logits = [output.logits if places is None else output.logits[0, places] for output in outputs]  # (M, C) of a layer
    assert len(logits) == 4 and len(found.places) == len(logits[0])
    for number, place in enumerate(found.places):
        best = int(logits[-1][number].argmax())
        tops = [int(layer[number].argmax()) for layer in logits]
        assert [guesses[0].id for guesses in place.guesses] == tops
        assert set(tops[place.from_layer :]) == {best}
        assert place.from_layer == 0 or tops[place.from_layer - 1] != best
        for layer, guesses in enumerate(place.guesses):
            chances = logits[layer][number].softmax(-1).numpy()
            assert np.allclose([guess.probability for guess in guesses], chances[[g.id for g in guesses]], atol=1e-5)
            assert len({guess.id for guess in guesses}) == len(chances)
            assert np.all(np.diff([guess.probability for guess in guesses]) <= 0)
            assert place.final_probability[layer] == pytest.approx(float(chances[best]), abs=1e-5)


def test_the_last_layer_answers_as_fill_does(family: Callable[..., Any]) -> None:
    ours = family("Bert").ours
    found = ours.explain(MASKED, method="layers", top=3)
    for place, filled in zip(found.places, ours.fill(MASKED, top=3), strict=True):
        last = [(guess.text, guess.id, pytest.approx(guess.probability, abs=1e-6)) for guess in place.guesses[-1]]
        assert [(one["token"], one["id"], one["probability"]) for one in filled] == last


def test_json_has_every_layer_of_every_mask(family: Callable[..., Any]) -> None:
    found = family("Bert").ours.explain(MASKED, method="layers", top=2).as_json()
    assert found["method"] == "layers" and found["kind"] == "token"
    masks = [n for n, token in enumerate(found["tokens"]) if token["token"] == "[MASK]"]
    assert [place["token"] for place in found["places"]] == masks and len(masks) == 2
    for place in found["places"]:
        assert [layer["layer"] for layer in place["layers"]] == [0, 1, 2, 3]
        assert all(len(layer["guesses"]) == 2 for layer in place["layers"])
        assert place["layers"][-1]["guesses"][0]["text"] == place["final"]


def test_what_has_no_head_to_read_layers_with_is_refused(minilm: Model, family: Callable[..., Any]) -> None:
    for texts in (("A text.",), ("A [MASK].",), ("A text.", "Another.")):
        with pytest.raises(UserError, match="has no head that could read its layers"):
            minilm.explain(*texts, method="layers")
    with pytest.raises(UserError, match=r"not fine-tuned and the text has no \[MASK\]"):
        family("Bert").ours.explain("w3 w4", method="layers")
    with pytest.raises(UserError, match="cannot be read one by one"):
        family("Bert").ours.explain("w3 w4", "w5", method="layers")
    with pytest.raises(UserError, match="0 guesses of each layer: give 1 or more"):
        family("Bert").ours.explain(MASKED, method="layers", top=0)
