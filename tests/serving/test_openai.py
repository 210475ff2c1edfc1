"""The `openai` package, unmodified, against a running server: vectors, batches, models, errors as its own classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

KEY = "a-key-for-tests"
TEXTS = ["The keel is laid.", "A gull above the harbour", "老船长看着龙骨 🙂", "x"]


@pytest.fixture
def client(server: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="not needed", max_retries=0) as found:
        yield found


def vectors(found: Any) -> np.ndarray:
    return np.array([one.embedding for one in found.data], np.float32)


def test_vectors_are_those_of_embed(client: openai.OpenAI, offline: dict[str, Any]) -> None:
    """In base64, which the package asks for unless told otherwise, and as floats: the same bits."""
    found = client.embeddings.create(model="minilm", input=TEXTS)
    expected = offline["minilm"].embed(TEXTS, normalize=True)
    np.testing.assert_allclose(vectors(found), expected, rtol=0, atol=1e-6)
    floats = client.embeddings.create(model="minilm", input=TEXTS, encoding_format="float")
    np.testing.assert_array_equal(vectors(floats), vectors(found))
    assert [one.index for one in found.data] == [0, 1, 2, 3] and found.model == "minilm" and found.object == "list"
    tokens = sum(map(len, offline["minilm"].frame(TEXTS)))
    assert found.usage.prompt_tokens == found.usage.total_tokens == tokens


def test_vectors_have_length_1_whatever_the_folder_says(client: openai.OpenAI, offline: dict[str, Any]) -> None:
    found = vectors(client.embeddings.create(model="bert", input="the captain"))
    (plain,) = offline["bert"].embed(["the captain"])
    assert np.linalg.norm(plain) > 1.5
    np.testing.assert_allclose(found[0], plain / np.linalg.norm(plain), atol=1e-6)


def test_dimensions_are_the_first_ones_at_length_1(client: openai.OpenAI, offline: dict[str, Any]) -> None:
    found = vectors(client.embeddings.create(model="minilm", input=TEXTS, dimensions=64))
    expected = offline["minilm"].embed(TEXTS)[:, :64]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="384"):
        client.embeddings.create(model="minilm", input=TEXTS, dimensions=385)


def test_a_large_batch_keeps_its_order(client: openai.OpenAI, offline: dict[str, Any]) -> None:
    texts = [f"note {number}: " + "the keel " * (number % 7) for number in range(300)]
    found = vectors(client.embeddings.create(model="bert", input=texts))
    np.testing.assert_allclose(found, offline["bert"].embed(texts, normalize=True), atol=1e-6)


def test_models_are_listed(client: openai.OpenAI, offline: dict[str, Any]) -> None:
    listed = client.models.list().data
    assert [one.id for one in listed] == list(offline) and {one.object for one in listed} == {"model"}
    one = client.models.retrieve("minilm")
    assert one.id == "minilm" and one.owned_by == "keel"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'"):
        client.models.retrieve("gpt-4")


def test_an_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=r"no model 'minilmm'\. Did you mean 'minilm'") as caught:
        client.embeddings.create(model="minilmm", input="a")
    assert caught.value.code == "model_not_found" and caught.value.type == "invalid_request_error"
    assert caught.value.request_id
    with pytest.raises(openai.NotFoundError, match="cannot embed"):
        client.embeddings.create(model="translator", input="a")


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": []}, None),
        ({"input": [1, 2, 3]}, "input"),  # ids of another tokenizer
        ({"input": [""], "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "word " * 600}, None),
        ({"input": "a", "extra_body": {"pooling": "max"}}, "pooling"),
    ],
)
def test_mistakes_are_bad_requests(client: openai.OpenAI, given: dict[str, Any], param: str | None) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="minilm", **given)
    assert caught.value.type == "invalid_request_error" and caught.value.param == param


def test_keys(start_server: Any, folders: dict[str, Any]) -> None:
    """The package sends its key as a bearer; a wrong one is an AuthenticationError, a full queue a RateLimitError."""
    server = start_server(f"minilm={folders['minilm']}", "--api-key", KEY, "--max-queue", "1")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        assert len(client.embeddings.create(model="minilm", input="a").data[0].embedding) == 384
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="another-key", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        stranger.embeddings.create(model="minilm", input="a")
    assert caught.value.code == "invalid_api_key"
    check_rate_limit(server.url)


def check_rate_limit(url: str) -> None:
    import asyncio

    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            texts = ["the captain watches the keel " * 9] * 50
            return await asyncio.gather(
                *(client.embeddings.create(model="minilm", input=texts) for _ in range(6)), return_exceptions=True
            )

    found = asyncio.run(ask())
    refused = [one for one in found if isinstance(one, openai.RateLimitError)]
    assert len(refused) + sum(not isinstance(one, BaseException) for one in found) == 6 and refused
    assert refused[0].code == "rate_limit_exceeded" and int(refused[0].response.headers["retry-after"]) >= 1

    async def ask_again() -> int:
        """With the package's own retries, which wait as long as Retry-After says."""
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=8) as client:
            return len(await asyncio.gather(*(client.embeddings.create(model="minilm", input="a") for _ in range(6))))

    assert asyncio.run(ask_again()) == 6
