"""What is served equals what is computed offline, whatever is computed beside it; each error in the route's dialect."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest
from raw_http import FULL

from served import near

Post = Callable[..., Any]

WORDS = [
    "the",
    "old",
    "captain",
    "watches",
    "a",
    "young",
    "sailor",
    "at",
    "dawn",
    "with",
    "seven",
    "lanterns",
    "老船长看着龙骨",
    "and",
    "🙂",
]


def texts(seed: int, count: int, longest: int = 9) -> list[str]:
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS, k=source.randint(1, longest))) for _ in range(count)]


INPUTS: dict[str, Callable[[str], Any]] = {
    "classifier": lambda text: text,
    "matcher": lambda text: [text, "The gull remembers."],
    "scorer": lambda text: [text, "The gull remembers."],
    "tagger": lambda text: text,
    "reader": lambda text: ["Who remembers?", f"The captain remembers {text}"],
    "chooser": lambda text: [text, ["captain", "harbour", "gull"]],
}
POOLED = {"pooling": "max", "layers": [1, 2], "normalize": False}
WRITTEN = {"tokens": 6, "temperature": 0.7, "top_k": 9, "seed": 5}
ALL = [*INPUTS, "minilm", "pooled", "bert", "translator", "writer"]
EACH = 1000 if FULL else 60  # texts of each
Job = tuple[str, dict[str, Any], Any]


def job(offline: dict[str, Any], name: str, some: list[str]) -> Job:
    """A path, a body, and the answer that it must have."""
    model = offline["minilm" if name == "pooled" else name]
    if name in INPUTS:
        given = [INPUTS[name](text) for text in some]
        return "/v1/predict", {"model": name, "inputs": given}, {"answers": model.predict(given)}
    if name == "minilm":
        return "/v1/embed", {"model": name, "texts": some}, {"vectors": model.embed(some).tolist()}
    if name == "pooled":
        vectors = model.embed(some, **POOLED).tolist()
        return "/v1/embed", {"model": "minilm", "texts": some, **POOLED}, {"vectors": vectors}
    if name == "bert":
        masked = [f"{text} [MASK] ." for text in some]
        filled = [{"text": text, "masks": model.fill(text, top=3)} for text in masked]
        return "/v1/fill", {"model": name, "texts": masked, "top": 3}, {"results": filled}
    if name == "writer":
        return "/v1/generate", {"text": some[0], **WRITTEN}, {"texts": model.generate(some[0], **WRITTEN)}
    return "/v1/translate", {"model": name, "texts": some}, {"answers": model.predict(some)}


@pytest.mark.timeout(1800 if FULL else 300)
def test_all_tasks_asked_at_once(server: Any, offline: dict[str, Any], record_property: Any) -> None:
    """Requests of 1 to 9 texts, 32 at a time, in an order that mixes models and tasks: each answer is its own. In full
    1,000 texts of every task."""
    source, jobs = random.Random(7), list[Job]()
    for number, name in enumerate(ALL):
        remaining = texts(number, EACH)
        while remaining:
            count = 1 if name == "writer" else source.randint(1, 9)
            jobs.append(job(offline, name, remaining[:count]))
            remaining = remaining[count:]
    source.shuffle(jobs)

    async def ask_all() -> list[Any]:
        places = asyncio.Semaphore(32)
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:

            async def ask(path: str, body: Any) -> Any:
                async with places:
                    found = await client.post(path, json=body)
                assert found.status_code == 200, found.text
                return found.json()

            return await asyncio.gather(*(ask(path, body) for path, body, _ in jobs))

    largest = 0.0
    for answer, (_, body, expected) in zip(asyncio.run(ask_all()), jobs, strict=True):
        assert answer["model"] == body.get("model", "writer")
        served = {key: answer[key] for key in expected}
        near(served, expected)
        pairs = zip(numbers(served), numbers(expected), strict=True)
        largest = max([largest, *(abs(one - other) / max(1, abs(other)) for one, other in pairs)])
    record_property("largest difference between served and offline", f"{largest:.1e}, {EACH} texts of each task")


def numbers(value: Any) -> list[float]:
    """All of an answer, in order."""
    if isinstance(value, dict | list):
        return [one for part in (value.values() if isinstance(value, dict) else value) for one in numbers(part)]
    return [value] if isinstance(value, float) else []


@pytest.mark.parametrize("wanted", [False, True])
def test_texts_are_logged_only_if_asked(offline: dict[str, Any], capfd: Any, wanted: bool) -> None:
    from keel.serving.app import make_app
    from keel.serving.models import Models, ServedModel
    from keel.serving.service import Service
    from keel.serving.settings import Settings

    app = make_app(Service(Models([ServedModel("bert", offline["bert"])]), Settings(log_texts=wanted)))

    async def ask() -> None:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.post("/v1/tokens", json={"texts": ["a private 船"]})).status_code == 200
            assert (await http.post("/v1/fill", json={"texts": ["a private 船"]})).status_code == 422

    asyncio.run(ask())
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["route"], line["status"]) for line in lines] == [("/v1/tokens", 200), ("/v1/fill", 422)]
    assert [line.get("texts") for line in lines] == [["a private 船"] if wanted else None] * 2
    assert wanted == any("private" in json.dumps(line) for line in lines)


def test_a_model_is_found_by_what_it_can_do(post: Post, offline: dict[str, Any]) -> None:
    assert post("/v1/fill", {"texts": ["the [MASK] sails"]})["model"] == "bert"
    assert post("/v1/generate", {"text": "the"})["model"] == "writer"
    assert post("/v1/embed", {"texts": ["a"]})["model"] == "minilm"
    assert "cannot fill" in post("/v1/fill", {"model": "minilm", "texts": ["[MASK]"]}, 404)["error"]["message"]
    assert "no model 'nobody'" in post("/v1/fill", {"model": "nobody", "texts": ["[MASK]"]}, 404)["error"]["message"]


def test_texts_are_continued_as_offline(post: Post, offline: dict[str, Any]) -> None:
    options = {"tokens": 8, "samples": 2, "temperature": 0.7, "top_k": 9, "seed": 5}
    served = post("/v1/generate", {"text": "the old", **options})["texts"]
    assert served == offline["writer"].generate("the old", **options)


def test_a_model_embeds_while_it_writes(server: Any, offline: dict[str, Any]) -> None:
    """On two threads, with the same weights: neither sees what the other has in its caches."""
    some = texts(11, 40)
    vectors = offline["writer"].embed(some)
    options = {"tokens": 40, "samples": 4, "seed": 3}
    written = offline["writer"].generate("the old", **options)

    async def both() -> tuple[list[Any], list[Any]]:
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
            asked = [client.post("/v1/generate", json={"text": "the old", **options}) for _ in range(4)]
            single = [client.post("/v1/embed", json={"model": "writer", "texts": [text]}) for text in some]
            answers = [one.json() for one in await asyncio.gather(*asked, *single)]
            return answers[:4], answers[4:]

    continued, embedded = asyncio.run(both())
    assert [one["texts"] for one in continued] == [written] * 4
    near([one["vectors"][0] for one in embedded], vectors.tolist())


def test_long_texts_are_treated_as_in_training(post: Post, offline: dict[str, Any]) -> None:
    """The classifier truncates at 24 tokens and says so; the reader slides windows over a text of 300 words."""
    long = " ".join(texts(1, 60))
    served = post("/v1/predict", {"model": "classifier", "inputs": [long, "short"]})
    near(served["answers"], offline["classifier"].predict([long, "short"]))
    assert served["truncated_texts"] == 1 and served["truncated_tokens"] > 100
    question = ["Who remembers?", long]
    near(
        post("/v1/predict", {"model": "reader", "inputs": [question]})["answers"], offline["reader"].predict([question])
    )


def test_a_text_beyond_the_positions_is_refused_or_cut(post: Post, offline: dict[str, Any]) -> None:
    long = "word " * 600
    assert "602 tokens" in post("/v1/embed", {"model": "minilm", "texts": [long]}, 413)["error"]["message"]
    vectors = post("/v1/embed", {"model": "minilm", "texts": [long], "truncate": True})["vectors"]
    near(vectors, offline["minilm"].embed(["word " * 254]).tolist())


def test_tokens_have_offsets_and_word_starts(post: Post) -> None:
    (found,) = post("/v1/tokens", {"model": "minilm", "texts": ["Unbelievably, 龙骨!"]})["texts"]
    pieces = [(t["text"], t["start"], t["end"], t["word_start"]) for t in found["tokens"]]
    assert pieces[:3] == [("un", 0, 2, True), ("##bel", 2, 5, False), ("##ie", 5, 7, False)]
    assert [found["text"][t["start"] : t["end"]] for t in found["tokens"]][-2:] == ["骨", "!"]


def test_cross_attention_comes_with_a_translation(post: Post) -> None:
    found = post("/v1/translate", {"texts": ["the captain sails"], "attention": True})["attention"]
    weights = np.array(found["weights"])
    assert weights.shape[2:] == (len(found["written"]), len(found["read"]))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


BAD: list[tuple[str, Any, int, str]] = [
    ("/v1/fill", {"texts": ["no mask"], "model": "bert"}, 422, "no [MASK]"),
    ("/v1/fill", {"texts": [], "model": "bert"}, 422, "no text"),
    ("/v1/fill", {"texts": "a [MASK]"}, 422, "texts"),
    ("/v1/fill", {"texts": ["[MASK]"], "top": 0}, 422, "top"),
    ("/v1/fill", {"text": ["[MASK]"]}, 422, "texts"),
    ("/v1/predict", {"model": "classifier", "inputs": [""]}, 422, "input 1: the text is empty"),
    ("/v1/predict", {"model": "reader", "inputs": ["only a question"]}, 422, "input 1"),
    ("/v1/predict", {"model": "bert", "inputs": ["a"]}, 404, "cannot predict"),
    ("/v1/embed", {"texts": ["a"], "pooling": "median"}, 422, "pooling"),
    ("/v1/embed", {"texts": ["a"], "layers": [99]}, 422, "layers"),
    ("/v1/embed", {"texts": ["a"], "prompt": "query"}, 422, "no prompt"),
    ("/v1/embed", {"texts": ["a"] * 1025}, 413, "1,025 texts"),
    ("/v1/embed", {"texts": ["a" * 600_000]}, 413, "600,000 characters"),
    ("/v1/generate", {"text": "a", "temperature": -1}, 422, "temperature"),
]


@pytest.mark.parametrize(("path", "body", "status", "said"), BAD)
def test_mistakes_are_answered_in_openai_s_form(post: Post, path: str, body: Any, status: int, said: str) -> None:
    error = post(path, body, status)["error"]
    assert said in error["message"] and error["type"] == "invalid_request_error" and "param" in error
