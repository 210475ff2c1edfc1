"""What is served equals what is computed offline, whatever is computed beside it; each error in the route's dialect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest

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
    "tagger": lambda text: text,
    "reader": lambda text: ["Who remembers?", f"The captain remembers {text}"],
    "scorer": lambda text: [text, "The gull remembers."],
    "chooser": lambda text: [text, ["captain", "harbour", "gull"]],
}


def test_a_thousand_texts_of_all_tasks_asked_at_once(server: Any, offline: dict[str, Any]) -> None:
    """Requests of 1 to 9 texts to nine models, 32 at a time, in an order that mixes them: each answer is its own."""
    source, jobs = random.Random(7), list[tuple[str, dict[str, Any], Any]]()
    remaining = texts(3, 1000)
    while remaining:
        count = source.randint(1, 9)
        some, remaining = remaining[:count], remaining[count:]
        name = source.choice([*INPUTS, "minilm", "bert", "translator", "embedder"])
        model = offline["minilm" if name == "embedder" else name]
        if name in INPUTS:
            given = [INPUTS[name](text) for text in some]
            jobs.append(("/v1/predict", {"model": name, "inputs": given}, {"answers": model.predict(given)}))
        elif name == "minilm":
            jobs.append(("/v1/embed", {"model": name, "texts": some}, {"vectors": model.embed(some).tolist()}))
        elif name == "embedder":
            body = {"model": "minilm", "texts": some, "pooling": "max", "layers": [1, 2], "normalize": False}
            jobs.append(("/v1/embed", body, {"vectors": model.embed(some, "max", [1, 2], normalize=False).tolist()}))
        elif name == "bert":
            masked = [f"{text} [MASK] ." for text in some]
            filled = [{"text": text, "masks": model.fill(text, top=3)} for text in masked]
            jobs.append(("/v1/fill", {"model": name, "texts": masked, "top": 3}, {"results": filled}))
        else:
            jobs.append(("/v1/translate", {"model": name, "texts": some}, {"answers": model.predict(some)}))
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

    for answer, (_, body, expected) in zip(asyncio.run(ask_all()), jobs, strict=True):
        assert answer["model"] == body["model"]
        near({key: answer[key] for key in expected}, expected)


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
