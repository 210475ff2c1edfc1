"""Attention weights are those of transformers; rollout is the published formula; JSON keeps every number."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from keel.errors import UserError
from keel.inference.model import Model

FAMILIES = (
    *("Bert", "Roberta", "XLMRoberta", "Electra", "Albert", "DistilBert", "MPNet", "DebertaV2", "GPT2", "ModernBert"),
)
TEXT = " ".join(f"w{7 * number % 90}" for number in range(30))
MIXED = "The animal didn't cross the street because it was too tired."


def inputs_of(found: Any, segments: bool) -> dict[str, torch.Tensor]:
    ids = torch.from_numpy(found.reading.ids)[None]
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if segments:
        given["token_type_ids"] = torch.from_numpy(found.reading.window.segments)[None]
    return given


def their_weights(model: Any, found: Any, segments: bool) -> np.ndarray:
    with torch.no_grad():
        layers = model(**inputs_of(found, segments), output_attentions=True).attentions
    return np.stack([layer[0].numpy() for layer in layers])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("pair", [None, "w3 w4 w5 w6 w7 w8 w9"])
def test_the_weights_are_those_of_transformers(family: Callable[..., Any], name: str, pair: str | None) -> None:
    ours, theirs, _ = family(name)
    found = ours.explain(TEXT, pair)
    expected = their_weights(theirs, found, segments=name in ("Bert", "Electra", "Albert"))
    assert found.weights.shape == expected.shape and found.weights.dtype == np.float32
    assert float(np.abs(found.weights - expected).max()) <= 1e-5
    assert np.allclose(found.weights.sum(-1), 1, atol=1e-5)
    if name == "GPT2":
        assert not np.triu(found.weights, 1).any(), "a causal model attends to nothing that comes later"
    if name == "ModernBert":
        far = np.abs(np.subtract.outer(np.arange(len(found.tokens)), np.arange(len(found.tokens)))) > 4
        assert not found.weights[1][:, far].any() and found.weights[0][:, far].any()


@pytest.mark.parametrize(
    "texts",
    [
        (MIXED,),
        (MIXED, "Another text."),
        ("a",),
        ("今天天气很好。", "猫"),
        ("Tears 😀 of joy 👩‍👩‍👧", "<script>alert(1)</script>"),
        ("word " * 510,),
    ],
)
def test_the_published_model_has_the_weights_of_transformers(
    minilm: Model, minilm_theirs: Any, texts: tuple[str, ...]
) -> None:
    started = time.monotonic()
    found = minilm.explain(*texts)
    assert time.monotonic() - started < 60
    assert float(np.abs(found.weights - their_weights(minilm_theirs, found, segments=True)).max()) <= 1e-5


def test_a_text_longer_than_the_positions_is_an_error(minilm: Model) -> None:
    with pytest.raises(UserError, match="512 positions"):
        minilm.explain("word " * 511)


@pytest.mark.parametrize("texts", [("",), (" \n",), (3,), ("a", "")])
def test_nothing_to_explain_is_an_error(minilm: Model, texts: tuple[Any, ...]) -> None:
    with pytest.raises(UserError, match=r"empty|not a text"):
        minilm.explain(*texts)


def test_rollout_is_the_published_formula(minilm: Model) -> None:
    found = minilm.explain(MIXED)
    layers = found.weights.astype(np.float64).mean(1)
    expected = np.eye(layers.shape[1])
    for weights in layers:  # Abnar & Zuidema 2020, equations 1 and 2
        with_residual = 0.5 * weights + 0.5 * np.eye(len(weights))
        expected = (with_residual / with_residual.sum(1, keepdims=True)) @ expected
    assert np.allclose(found.rollout(), expected, atol=1e-6)
    assert np.allclose(found.rollout().sum(1), 1, atol=1e-5)


def test_tokens_tell_where_they_stand(minilm: Model) -> None:
    text, pair = "Unbelievable 😀 naïve <b>", "猫 sat"
    found = minilm.explain(text, pair).as_json()
    assert found["text"] == text and found["pair"] == pair and found["model_kind"] == "bert"
    names = [token["text"] for token in found["tokens"]]
    assert names[0] == "[CLS]" and names.count("[SEP]") == 2 and "😀" in names
    for token in found["tokens"]:
        assert token["special"] == (token["start"] is None)
        if not token["special"]:
            assert (text, pair)[token["segment"]][token["start"] : token["end"]] == token["text"]
    assert [token["segment"] for token in found["tokens"]][-3:] == [1, 1, 1]


def test_json_keeps_the_numbers(minilm: Model) -> None:
    found = minilm.explain("A small text.")
    plain = found.as_json()
    assert plain["method"] == "attention" and np.allclose(plain["weights"], found.weights)
    some = found.as_json(layers=[2, 6], heads=[12], encoding="base64")
    raw = np.frombuffer(base64.b64decode(some["weights"]), "<f4").reshape(some["shape"])
    assert np.array_equal(raw, found.weights[[1, 5]][:, [11]]) and some["layers"] == [2, 6] and some["heads"] == [12]


def test_thumbnails_hold_the_largest_weight_of_each_cell(minilm: Model) -> None:
    found = minilm.explain("word " * 40)
    plain = found.as_json(thumbnails=8)
    assert plain["weights"] is None
    small = plain["thumbnails"]
    maps = np.frombuffer(base64.b64decode(small["data"]), np.uint8).reshape(small["shape"])
    assert maps.shape == (6, 12, 8, 8)
    edges = [number * 42 // 8 for number in range(9)]
    for row in range(8):
        for column in range(8):
            cell = found.weights[3, 4, edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
            assert maps[3, 4, row, column] == round(float(cell.max()) * 255)
    assert found.as_json(layers=[1], thumbnails=100)["thumbnails"]["shape"] == [6, 12, 42, 42]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"layers": [7]}, "layer 7: this model has layers 1 to 6"),
        ({"heads": [0]}, "head 0: this model has heads 1 to 12"),
        ({"encoding": "xml"}, "unknown encoding 'xml'"),
        ({"thumbnails": -1}, "thumbnails of -1 x -1"),
    ],
)
def test_impossible_selections_are_errors(minilm: Model, options: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        minilm.explain("A small text.").as_json(**options)


def test_summaries_are_computed_from_the_weights(minilm: Model) -> None:
    found = minilm.explain(MIXED)
    one = found.summaries(4, 2)[0]
    weights = found.weights[3, 1].astype(np.float64)
    assert one.entropy == pytest.approx(float(-(weights * np.log2(weights)).sum(1).mean()), abs=1e-4)
    assert one.special == pytest.approx(float(weights[:, [0, -1]].sum(1).mean()), abs=1e-6)
    start, end, weight = one.links[0]
    assert weights[start, end] == pytest.approx(weight)
    labels = found.reading.labels
    assert (labels[start], labels[end]) == ("it", "animal")  # what docs/guide/explaining.md shows


def test_where_a_word_looks_is_read_from_its_rows_and_columns(minilm: Model) -> None:
    """To a word of several tokens the sum, from it the mean (Clark et al. 2019, section 4.1)."""
    found = minilm.explain("It was unbelievably good tokenization.")
    names = found.reading.labels
    words = {word.text: list(word.tokens) for word in found.reading.words}
    start, to = words["unbelievably"], words["tokenization"]
    assert len(start) > 1 and len(to) > 1
    looks = found.looks("unbelievably")
    assert looks.shape == (6, 12, len(names)) and np.allclose(looks.sum(-1), 1, atol=1e-5)
    for layer in (0, 5):
        for head in (0, 11):
            weights = found.weights[layer, head].astype(np.float64)
            expected = sum(weights[i, j] for i in start for j in to) / len(start)
            assert found.looks("unbelievably", "tokenization")[layer, head] == pytest.approx(expected, abs=1e-6)
            assert looks[layer, head, 0] == pytest.approx(np.mean([weights[i, 0] for i in start]), abs=1e-6)
    assert np.array_equal(found.looks("unbelievably", "[CLS]"), looks[:, :, 0])
    chosen = found.as_json(layers=[2], start="unbelievably", to="tokenization")
    assert chosen["shape"] == [1, 12] and (chosen["from"], chosen["to"]) == ("unbelievably", "tokenization")
    with pytest.raises(UserError, match=r"there is no word 'tokenisation' in the text\. Did you mean 'tokenization'"):
        found.looks("unbelievably", "tokenisation")


def test_many_weights_are_not_written_as_lists_unless_asked(minilm: Model) -> None:
    found = minilm.explain("word " * 130)
    assert found.as_json()["encoding"] == "base64" and found.as_json(layers=[1])["encoding"] == "lists"
    raw = np.frombuffer(base64.b64decode(found.as_json()["weights"]), "<f4").reshape(6, 12, 132, 132)
    assert np.array_equal(raw, found.weights)
    lists = found.as_json(layers=[1], heads=[1])["weights"]
    assert float(np.abs(np.float32(lists) - found.weights[:1, :1]).max()) <= 1e-8 and len(str(lists)) < 12 * 132**2


def test_ordinary_answers_are_the_same_with_and_without_an_inspection(minilm: Model) -> None:
    before = minilm.encode([MIXED])[0]
    minilm.explain(MIXED)
    minilm.explain(MIXED, method="heads")
    assert np.array_equal(minilm.encode([MIXED])[0], before)


def test_an_unknown_method_is_an_error(minilm: Model) -> None:
    with pytest.raises(UserError, match=r"there is no method 'atention'.*attention"):
        minilm.explain(MIXED, method="atention")
