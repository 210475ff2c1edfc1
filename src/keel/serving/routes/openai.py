"""`/v1/embeddings` as OpenAI's clients ask it, floats or base64, and one entry of `/v1/models`. (The list of all is in
`operations.py`.)

In: texts. Out: vectors of length 1, whatever the model's folder says: those clients compare by dot product.
"""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from keel.errors import UserError
from keel.inference.work import Work
from keel.serving.json_bodies import StrictRoute
from keel.serving.routes._documents import OF_BODIES, Embeddings, ListedModel, OpenAIError, errors, example
from keel.serving.service import Service, respond


class EmbeddingsBody(BaseModel):
    model_config = ConfigDict(json_schema_extra=example(input=["The keel is laid."]), extra="forbid", strict=True)
    input: str | list[str] = Field(description="Texts; token ids are not accepted, they belong to another tokenizer.")
    model: str | None = Field(None, description="Default: the first that can embed.")
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = Field(None, ge=1, description="Keep the first dimensions only, at length 1.")
    user: str | None = Field(None, description="Ignored.")


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["OpenAI"], route_class=StrictRoute)

    @routes.post("/embeddings", response_model=Embeddings, responses=errors(OpenAIError, 400, 404, *OF_BODIES))
    async def embeddings(body: EmbeddingsBody, request: Request) -> Response:
        """One vector of length 1 per text."""
        served = service.models.find(body.model, "embed")
        texts = [body.input] if isinstance(body.input, str) else body.input
        tokens = 0

        def make() -> Work[np.ndarray]:
            nonlocal tokens
            work = served.model.embed_work(texts, normalize=True)
            tokens = sum(work.sizes)
            return work

        vectors = shorten(await service.answer(request, texts, make), body.dimensions)
        data = [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, body.encoding_format)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return respond({"object": "list", "data": data, "model": served.name, "usage": usage})

    @routes.get("/models/{name}", response_model=ListedModel, responses=errors(OpenAIError, 404, 422))
    async def model(name: str) -> Response:
        """What a model is, and what it can do."""
        return respond(service.models.find(name).listed())

    return routes


def shorten(vectors: np.ndarray, dimensions: int | None, normalize: bool = True) -> np.ndarray:
    """The first dimensions, at length 1 again."""
    if dimensions is None:
        return vectors
    if dimensions > vectors.shape[1]:
        raise UserError(f"dimensions: {dimensions} are asked for, but this model's vectors have {vectors.shape[1]}")
    kept = np.ascontiguousarray(vectors[:, :dimensions])
    return kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-12) if normalize else kept


def _encoded(vector: np.ndarray, encoding: str | None) -> Any:
    vector = np.ascontiguousarray(vector, dtype="<f4")
    return base64.b64encode(vector.tobytes()).decode() if encoding == "base64" else vector
