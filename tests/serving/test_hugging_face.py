"""huggingface_hub's InferenceClient, unmodified, against a running server: every task, by address and by base_url."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

Clients = Callable[[str], InferenceClient]


@pytest.fixture
def at(server: Any) -> Clients:
    """`at("minilm")`: a client of this model."""
    return lambda name: InferenceClient(model=f"{server.url}/models/{name}", token="not-needed")


def test_fill_mask(at: Clients, offline: dict[str, Any]) -> None:
    found = at("bert").fill_mask("the old [MASK] sails")
    (expected,) = offline["bert"].fill("the old [MASK] sails", top=5)
    assert [(one.token, one.token_str) for one in found] == [(one["id"], one["token"]) for one in expected]
    assert [one.score for one in found] == pytest.approx([one["probability"] for one in expected], rel=1e-6)
    assert len(at("bert").fill_mask("the old [MASK] sails", top_k=2)) == 2
    limited = at("bert").fill_mask("the old [MASK] sails", targets=["captain", "gull"])
    assert {one.token_str for one in limited} == {"captain", "gull"}


def test_text_classification(at: Clients, offline: dict[str, Any]) -> None:
    found = at("classifier").text_classification("the captain remembers the keel")
    (expected,) = offline["classifier"].predict(["the captain remembers the keel"])
    assert {one.label: one.score for one in found} == pytest.approx(expected["probabilities"], rel=1e-6)
    assert [one.label for one in found] == list(expected["probabilities"])
    best = at("classifier").text_classification("the captain remembers the keel", top_k=1)
    assert [one.label for one in best] == [expected["label"]]


def test_token_classification(at: Clients, offline: dict[str, Any]) -> None:
    text = "The captain remembers the harbour at dawn."
    (expected,) = offline["tagger"].predict([text])
    found = at("tagger").token_classification(text)
    assert [(one.entity_group, one.word, one.start, one.end) for one in found] == [
        (one["label"], one["text"], one["start"], one["end"]) for one in expected["entities"]
    ]
    assert found and [one.score for one in found] == pytest.approx(
        [one["probability"] for one in expected["entities"]], rel=1e-6
    )
    simple = at("tagger").token_classification(text, aggregation_strategy="simple", ignore_labels=[])
    assert {text[one.start : one.end] for one in simple} >= {one.word for one in found}
    assert at("tagger").token_classification(text, ignore_labels=[one.entity_group for one in found]) == []


def test_question_answering(at: Clients, offline: dict[str, Any]) -> None:
    context = "The captain watches the keel at dawn and the gull remembers the harbour."
    client = at("reader")
    (expected,) = offline["reader"].predict([["Who watches?", context]])
    found = client.question_answering("Who watches?", context)
    best = expected["best"][0]
    assert (found.answer, found.start, found.end) == (best["text"], best["start"], best["end"])
    assert found.score == pytest.approx(best["probability"], rel=1e-6)
    several = client.question_answering("Who watches?", context, top_k=2)
    assert [one.answer for one in several] == [one["text"] for one in expected["best"][:2]]


def test_feature_extraction(at: Clients, offline: dict[str, Any], server: Any) -> None:
    texts = ["the keel is laid", "a gull"]
    client = at("minilm")
    expected = offline["minilm"].embed(texts)
    np.testing.assert_allclose(client.feature_extraction(texts), expected, atol=1e-6)
    np.testing.assert_allclose(client.feature_extraction(texts[0]), expected[:1], atol=1e-6)
    plain = offline["minilm"].embed(texts, normalize=False)
    np.testing.assert_allclose(client.feature_extraction(texts, normalize=False), plain, rtol=1e-6, atol=1e-6)
    with pytest.raises(HfHubHTTPError, match="602 tokens"):
        client.feature_extraction("word " * 600)
    cut = client.feature_extraction("word " * 600, truncate=True)
    np.testing.assert_allclose(cut, offline["minilm"].embed(["word " * 254]), atol=1e-6)
    (tokens,) = offline["bert"].encode(["the keel"])
    np.testing.assert_allclose(at("bert").feature_extraction("the keel")[0], tokens, rtol=1e-6, atol=1e-6)


def test_sentence_similarity(at: Clients, offline: dict[str, Any]) -> None:
    others = ["A gull flies.", "The ship's keel was put in place."]
    found = at("minilm").sentence_similarity("The keel is laid.", others)
    first, *rest = offline["minilm"].embed(["The keel is laid.", *others], normalize=True)
    assert found == pytest.approx([float(first @ one) for one in rest], abs=1e-6)


def test_translation(at: Clients, offline: dict[str, Any]) -> None:
    found = at("translator").translation("the captain sails")
    assert found.translation_text == offline["translator"].predict(["the captain sails"])[0]["translation"]


def test_text_generation(at: Clients) -> None:
    one = at("writer").text_generation("the old", max_new_tokens=6, seed=3)
    assert one and one == at("writer").text_generation("the old", max_new_tokens=6, seed=3)
    assert (
        at("writer").text_generation("the old", max_new_tokens=6, seed=3, return_full_text=True).startswith("the old")
    )


def test_the_address_alone_is_the_first_model(server: Any, offline: dict[str, Any]) -> None:
    """As with text-embeddings-inference; `base_url` is another word for `model`."""
    client = InferenceClient(base_url=server.url)
    np.testing.assert_allclose(client.feature_extraction("a"), offline["minilm"].embed(["a"]), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "ask", "status", "said"),
    [
        ("nobody", lambda c: c.fill_mask("[MASK]"), 404, "no model 'nobody'"),
        ("bert", lambda c: c.question_answering("who?", "the gull"), 404, "cannot predict"),
        ("classifier", lambda c: c.question_answering("who?", "the gull"), 422, "fine-tuned for classify"),
        ("minilm", lambda c: c.feature_extraction("a", prompt_name="query"), 422, "no prompt"),
        ("reader", lambda c: c.question_answering("who?", "the gull", max_answer_len=3), 422, "max_answer_len"),
    ],
)
def test_mistakes(at: Clients, name: str, ask: Callable[[InferenceClient], Any], status: int, said: str) -> None:
    with pytest.raises(HfHubHTTPError) as caught:
        ask(at(name))
    assert caught.value.response.status_code == status and said in caught.value.response.json()["error"]
