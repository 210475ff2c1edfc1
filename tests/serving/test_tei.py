"""A client of text-embeddings-inference against running servers: forms as published, numbers as by transformers."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from tei_client import DEFAULTS, TeiClient, read

TEXTS = ["The keel is laid.", "A gull above the harbour", "老船长看着龙骨 🙂", "Unbelievably naïve", "x"]
LONG = "the captain watches the keel and a gull remembers every harbour " * 60
PROMPTS = {"query": "Represent this question: ", "passage": "passage: "}
TIMEOUT = 3
ONE_WAITS = re.compile(r"^keel_queue_requests\{.*\} 1\.0$", re.MULTILINE)


@pytest.fixture(scope="module")
def prompted(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sentence encoder, with prompts."""
    folder = tmp_path_factory.mktemp("prompted") / "model"
    shutil.copytree(minilm, folder)
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "prompts": PROMPTS, "default_prompt_name": None}))
    return folder


@pytest.fixture(scope="module")
def small_server(start_server: Any, prompted: Path, folders: dict[str, Path]) -> Any:
    """A server that takes one request at a time, and little patience."""
    models = (f"prompted={prompted}", f"scorer={folders['scorer']}")
    return start_server(*models, "--max-queue", "1", "--timeout", TIMEOUT)


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[TeiClient]:
    found = TeiClient(server.url)
    yield found
    found.http.close()


@pytest.fixture(scope="module")
def small(small_server: Any) -> Iterator[TeiClient]:
    found = TeiClient(small_server.url)
    yield found
    found.http.close()


@pytest.fixture(scope="module")
def tokenizer(minilm: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(minilm)


@pytest.fixture(scope="module")
def token_vectors(minilm: Path, tokenizer: Any) -> Callable[..., np.ndarray]:
    """(tokens, width), by transformers, text by text; cut to what sentence_bert_config.json says."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(minilm).eval()

    def of(text: str, side: str = "right") -> np.ndarray:
        tokenizer.truncation_side = side
        with torch.inference_mode():
            found = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=256))
        vectors: np.ndarray = found.last_hidden_state[0].numpy()
        return vectors

    return of


@pytest.fixture(scope="module")
def logits(folders: dict[str, Path]) -> Callable[..., np.ndarray]:
    """`logits(name, texts, pairs)`, by transformers."""
    import torch
    import transformers

    def of(name: str, *texts: list[str]) -> np.ndarray:
        path = folders[name]
        model = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
        given = transformers.AutoTokenizer.from_pretrained(path)(*texts, return_tensors="pt", padding=True)
        with torch.inference_mode():
            found: np.ndarray = model(**given).logits.double().numpy()
        return found

    return of


def mean(vectors: np.ndarray) -> np.ndarray:
    found: np.ndarray = vectors.astype(np.float64).mean(0)
    return found


def unit(vector: np.ndarray) -> np.ndarray:
    found: np.ndarray = vector / np.linalg.norm(vector)
    return found


def same(served: Any, expected: Any) -> None:
    """To 1e-6, of the longest vector where they are longer than 1."""
    longest = np.linalg.norm(np.atleast_1d(expected), axis=-1).max()
    np.testing.assert_allclose(served, expected, rtol=0, atol=1e-6 * max(1.0, longest))


def test_texts_are_embedded(client: TeiClient, token_vectors: Callable[..., np.ndarray]) -> None:
    pooled = [mean(token_vectors(text)) for text in TEXTS]
    same(client("/embed", inputs=TEXTS), [unit(one) for one in pooled])
    same(client("/embed", inputs=TEXTS, normalize=False), pooled)
    same(client("/embed", inputs=TEXTS[0]), [unit(pooled[0])])
    for served, text in zip(client("/embed_all", inputs=TEXTS), TEXTS, strict=True):
        np.testing.assert_allclose(served, token_vectors(text), rtol=1e-5, atol=5e-6)  # not averaged: float32's noise


def test_tokens_are_embedded(client: TeiClient) -> None:
    """As /tokenize gives them; a list of numbers is one text."""
    ids = [[token["id"] for token in row] for row in client("/tokenize", inputs=TEXTS[:2])]
    expected = client("/embed", inputs=TEXTS[:2])
    assert client("/embed", inputs=ids) == expected
    assert client("/embed", inputs=ids[0]) == expected[:1]
    assert client("/embed", inputs=[TEXTS[0], ids[1]]) == expected


@pytest.mark.parametrize("direction", ["Left", "Right"])
def test_long_texts_are_cut_when_asked(client: TeiClient, token_vectors: Any, direction: str) -> None:
    status, answer = client.ask("/embed", inputs=LONG)
    assert status == 413 and "positions" in answer["error"]
    vectors = token_vectors(LONG, direction.lower())
    assert len(vectors) == 256 == client.info()["max_input_length"]
    cut = {"truncate": True, "truncation_direction": direction}
    same(client("/embed", inputs=LONG, **cut), [unit(mean(vectors))])
    (served,) = client("/embed_all", inputs=LONG, **cut)
    np.testing.assert_allclose(served, vectors, rtol=1e-5, atol=5e-6)
    given = {"source_sentence": "a gull", "sentences": [LONG]}
    expected = unit(mean(token_vectors("a gull"))) @ unit(mean(vectors))
    same(client("/similarity", inputs=given, parameters={"prompt_name": None, **cut}), [expected])


def test_prompts_are_put_before_texts(small: TeiClient, token_vectors: Any, tokenizer: Any) -> None:
    expected = [unit(mean(token_vectors(PROMPTS["query"] + text))) for text in TEXTS]
    same(small("/embed", inputs=TEXTS, prompt_name="query"), expected)
    (tokens,) = small("/tokenize", inputs="a gull", prompt_name="passage")
    assert [token["id"] for token in tokens] == tokenizer("passage: a gull").input_ids
    status, answer = small.ask("/embed", inputs=TEXTS, prompt_name="querry")
    assert status == 422 and "Did you mean 'query'" in answer["error"]


def test_the_same_as_by_the_library(client: TeiClient, small: TeiClient, prompted: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(prompted), device="cpu")
    same(client("/embed", inputs=[*TEXTS, LONG], truncate=True), encoder.encode([*TEXTS, LONG]))
    same(small("/embed", inputs=TEXTS, prompt_name="passage"), encoder.encode(TEXTS, prompt_name="passage"))


def test_sentences_are_compared(client: TeiClient, token_vectors: Callable[..., np.ndarray]) -> None:
    first, *rest = [unit(mean(token_vectors(text))) for text in TEXTS]
    given = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    same(client("/similarity", inputs=given), [first @ one for one in rest])
    same(client("/similarity", inputs=given, parameters=None), [first @ one for one in rest])


def test_texts_are_labelled(client: TeiClient, logits: Callable[..., np.ndarray], folders: dict[str, Path]) -> None:
    texts = ["The captain remembers the keel.", "a gull", "老船长"]
    raw = logits("classifier", texts)
    powers = np.exp(raw)
    labels = json.loads((folders["classifier"] / "config.json").read_text())["id2label"]

    def by_label(answer: list[dict[str, Any]]) -> list[float]:
        assert answer == sorted(answer, key=lambda one: -one["score"])
        scores = {one["label"]: one["score"] for one in answer}
        return [scores[labels[str(number)]] for number in range(len(labels))]

    batch = client("/predict", inputs=[[text] for text in texts])
    same([by_label(one) for one in batch], powers / powers.sum(1, keepdims=True))
    same([by_label(one) for one in client("/predict", inputs=[[t] for t in texts], raw_scores=True)], raw)
    same(by_label(client("/predict", inputs=texts[0])), by_label(batch[0]))


def test_pairs_are_scored_and_ranked(small: TeiClient, logits: Callable[..., np.ndarray]) -> None:
    query, texts = "the keel", ["The keel is laid.", "a gull", "Seven lanterns, and a sailor at dawn!"]
    raw = logits("scorer", [query] * 3, texts)[:, 0]
    sigmoid = 1 / (1 + np.exp(-raw))
    found = small("/rerank", query=query, texts=texts, return_text=True)
    assert [one["index"] for one in found] == np.argsort(-raw).tolist()
    assert all(one["text"] == texts[one["index"]] for one in found)
    same([one["score"] for one in found], sorted(sigmoid, reverse=True))
    found = small("/rerank", query=query, texts=texts, raw_scores=True)
    same([one["score"] for one in found], sorted(raw, reverse=True))
    assert all(one.get("text") is None for one in found)
    pairs = small("/predict", inputs=[[query, text] for text in texts])
    same([one["score"] for (one,) in pairs], sigmoid)
    (alone,) = small("/predict", inputs=[query, texts[0]], raw_scores=True)
    same(alone["score"], raw[0])


def test_texts_become_tokens_and_tokens_texts(client: TeiClient, tokenizer: Any) -> None:
    for special in (True, False):
        expected = tokenizer(TEXTS, add_special_tokens=special, return_offsets_mapping=True)
        served = client("/tokenize", inputs=TEXTS, add_special_tokens=special)
        assert [[token["id"] for token in row] for row in served] == expected.input_ids
        for text, row, spans in zip(TEXTS, served, expected.offset_mapping, strict=True):
            ordinary = [token for token in row if not token["special"]]
            assert len(row) - len(ordinary) == 2 * special
            assert [(t["start"], t["stop"]) for t in ordinary] == [s for s in spans if s != (0, 0)]
            assert all(token["text"] == text[token["start"] : token["stop"]] for token in ordinary)
    ids = tokenizer(TEXTS).input_ids
    for hidden in (True, False):
        decode = tokenizer.backend_tokenizer.decode
        expected = [decode(row, skip_special_tokens=hidden) for row in ids]
        assert client("/decode", ids=ids, skip_special_tokens=hidden) == expected
        assert client("/decode", ids=ids[0], skip_special_tokens=hidden) == expected[:1]


def test_the_server_describes_itself(client: TeiClient, small: TeiClient) -> None:
    info = client.info()
    assert info["model_id"] == "minilm" and info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert info["model_dtype"] == "float32" and not info["auto_truncate"]
    assert small.info()["max_concurrent_requests"] == 1
    assert client.http.get("/health").status_code == 200
    metrics = client.http.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain") and "keel_requests_total{" in metrics.text


@pytest.mark.parametrize(
    ("route", "fields", "status", "said"),
    [
        ("/embed", {"inputs": []}, 400, "empty"),
        ("/rerank", {"query": "a", "texts": []}, 400, "empty"),
        ("/embed", {"inputs": ["a"] * 1025}, 413, "1,025 texts"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"] * 1025}}, 413, "1,025 texts"),
        ("/embed_all", {"inputs": LONG}, 413, "positions"),
        ("/embed", {"inputs": {"text": "a"}}, 422, "inputs"),
        ("/embed", {"inputs": [10**9]}, 422, "vocabulary"),
        ("/decode", {"ids": [10**9]}, 422, "vocabulary"),
        ("/tokenize", {"inputs": 5}, 422, "inputs"),
        ("/predict", {"inputs": [["a", "b", "c"]]}, 422, "one text or a pair"),
        ("/embed_sparse", {"inputs": "a"}, 424, "sparse"),
    ],
)
def test_errors(client: TeiClient, route: str, fields: dict[str, Any], status: int, said: str) -> None:
    found, answer = client.ask(route, **fields)
    assert found == status and said in answer["error"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not JSON"),
        (b'{"inputs": NaN}', "not JSON"),
        (b'{"inputs": "\\ud800"}', "not JSON: no low surrogate"),
        (b'{"inputs": "\xff"}', "not JSON: str is not valid UTF-8"),
        (b"[" * 100_000, "not JSON: depth limit"),
        (b"[1]", "dictionary"),
        (b"", "required"),
    ],
)
def test_a_body_that_is_no_request(client: TeiClient, content: bytes, said: str) -> None:
    response = client.http.post("/tokenize", content=content, headers={"content-type": "application/json"})
    status, answer = read("/tokenize", response)
    assert status == 422 and said in answer["error"]
    response = client.http.post("/tokenize", content=b'{"inputs": "a"}')  # as curl without a content type
    status, answer = read("/tokenize", response)
    assert status == 422 and "Content-Type: application/json" in answer["error"]


@pytest.mark.parametrize("route", ["/embed", "/embed_all", "/embed_sparse", "/similarity", "/predict", "/rerank"])
def test_a_model_that_cannot(offline: dict[str, Any], route: str) -> None:
    """A translator is asked for what it does not do."""
    from keel.serving.app import make_app
    from keel.serving.models import Models, ServedModel
    from keel.serving.service import Service
    from keel.serving.settings import Settings

    app = make_app(Service(Models([ServedModel("translator", offline["translator"])]), Settings(quiet=True)))
    given = {"/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}}}
    body = {"inputs": "a", "query": "a", "texts": ["b"], **DEFAULTS[route], **given.get(route, {})}

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.post(route, json=body)

    assert read(route, asyncio.run(ask()))[0] == 424


def test_a_server_that_is_busy(small_server: Any) -> None:
    """One request takes longer than it may, 503; those that come meanwhile find the queue full, 429."""

    async def ask() -> list[httpx2.Response]:
        async with httpx2.AsyncClient(base_url=small_server.url, timeout=60) as http:
            slow = asyncio.ensure_future(http.post("/embed", json={"inputs": ["the keel " * 120] * 480}))
            while not ONE_WAITS.search((await http.get("/metrics")).text):
                assert not slow.done()
            return [await http.post("/embed", json={"inputs": "a"}), await slow]

    refused, late = asyncio.run(ask())
    assert read("/embed", refused)[0] == 429 and int(refused.headers["retry-after"]) >= 1
    assert read("/embed", late)[0] == 503
