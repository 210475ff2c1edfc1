"""`/v1/explain` answers as `model.explain(...)` does, for every kind of model and method; so are mistakes told."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from keel.errors import UserError
from served import near

Post = Callable[..., Any]
TEXT = "The gull remembers the keel."
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("minilm", {"text": TEXT}),
    ("minilm", {"text": TEXT, "pair": "A ship.", "method": "attribution"}),
    ("minilm", {"text": TEXT, "method": "heads"}),
    ("classifier", {"text": TEXT, "method": "attribution", "label": "gull", "steps": 8}),
    ("classifier", {"text": TEXT, "method": "layers", "top": 2}),
    ("tagger", {"text": TEXT, "method": "attribution", "by": "occlusion", "word": "keel"}),
    ("reader", {"text": "Who?", "pair": TEXT, "method": "attribution"}),
    ("bert", {"text": "The [MASK].", "method": "layers"}),
    ("bert", {"text": "The [MASK].", "method": "heads", "token": "gull", "scale": "logit"}),
    ("translator", {"text": "the captain sails"}),
]


@pytest.mark.parametrize(("name", "body"), ASKED, ids=lambda one: one if isinstance(one, str) else one.get("method"))
def test_an_explanation_is_the_offline_one(
    name: str, body: dict[str, Any], post: Post, offline: dict[str, Any]
) -> None:
    found = post("/v1/explain", {"model": name, **body})
    options = {key: value for key, value in body.items() if key not in ("text", "pair", "method")}
    expected = offline[name].explain(body["text"], body.get("pair"), body.get("method", "attention"), **options)
    near(found, {"model": name, **expected.as_json()}, 1e-5)


def test_some_heads_as_base64(post: Post, offline: dict[str, Any]) -> None:
    chosen = {"layers": [4], "heads": [2, 3], "encoding": "base64", "rollout": True}
    found = post("/v1/explain", {"model": "minilm", "text": TEXT, **chosen})
    maps = offline["minilm"].explain(TEXT)
    weights = np.frombuffer(base64.b64decode(found["weights"]), "<f4").reshape(found["shape"])
    np.testing.assert_allclose(weights, maps.weights[3:4, 1:3], atol=1e-6)
    rollout = np.frombuffer(base64.b64decode(found["rollout"]), "<f4").reshape(weights.shape[2:])
    np.testing.assert_allclose(rollout, maps.rollout(), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("minilm", {"text": ""}),
        ("minilm", {"text": "word " * 600}),
        ("minilm", {"text": TEXT, "layers": [7]}),
        ("minilm", {"text": TEXT, "method": "layers"}),
        ("classifier", {"text": TEXT, "method": "heads", "label": "gul"}),
        ("tagger", {"text": TEXT, "method": "attribution", "word": "kel"}),
        ("reader", {"text": "Who?", "method": "attribution"}),
    ],
)
def test_a_mistake_has_the_offline_message(
    name: str, body: dict[str, Any], post: Post, offline: dict[str, Any]
) -> None:
    told = post("/v1/explain", {"model": name, **body}, 422)["error"]["message"]
    options = {key: value for key, value in body.items() if key in ("label", "word")}
    with pytest.raises(UserError) as expected:
        maps = offline[name].explain(body["text"], body.get("pair"), body.get("method", "attention"), **options)
        maps.as_json(layers=body.get("layers"))
    said = str(expected.value)
    assert told == said or told == said.replace(str(offline[name].path), name)
