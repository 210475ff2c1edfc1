"""Keel's own routes: `/v1/predict`, `/v1/fill`, `/v1/embed`, `/v1/translate`, `/v1/generate`, `/v1/tokens`,
`/v1/explain`.

In: texts and options, with the names that the Python API has. Out: what `Model.predict`, `fill`, `embed`, ... return.
`model` may be left out: the first model that can do it answers.
"""

from __future__ import annotations

import threading
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from keel.errors import UserError
from keel.explain.attention import AttentionMaps
from keel.inference.translate import attention, translate_work
from keel.inference.work import Work
from keel.serving.errors import ClientGone
from keel.serving.json_bodies import StrictRoute
from keel.serving.models import ServedModel
from keel.serving.routes._documents import (
    OF_BODIES,
    Answers,
    Explanation,
    Filled,
    Generated,
    OpenAIError,
    Tokenized,
    Translations,
    Vectors,
    errors,
    example,
)
from keel.serving.service import Service, alone, done, respond

Name = Annotated[str | None, Field(description="The model's name; default: the first that can do it.")]


OPTIONS = ("label", "token", "word", "scale", "by", "baseline", "steps", "top")  # of the methods of explain


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    model: Name = None


class PredictBody(Body):
    model_config = ConfigDict(json_schema_extra=example(inputs=["The captain remembers the harbour."]))
    inputs: list[str | list[str | list[str]]] = Field(
        description="Each a text; a list of two texts for pairs; [question, text] for answers; [text, [choices]]."
    )


class FillBody(Body):
    model_config = ConfigDict(json_schema_extra=example(texts=["The [MASK] is calm."], top=3))
    texts: list[str] = Field(description="Texts with [MASK].")
    top: int = Field(5, ge=1, le=1000, description="Predictions for each [MASK].")


class EmbedBody(Body):
    model_config = ConfigDict(json_schema_extra=example(texts=["The keel is laid."]))
    texts: list[str]
    pooling: Literal["mean", "cls", "max"] | None = None
    layers: list[int] = Field(default_factory=lambda: [-1], min_length=1, max_length=200)
    normalize: bool | None = None
    prompt: str | None = None
    truncate: bool = False


class TranslateBody(Body):
    model_config = ConfigDict(json_schema_extra=example(texts=["The keel is laid."]))
    texts: list[str]
    attention: bool = Field(False, description="Also the cross-attention, for a single text.")


class GenerateBody(Body):
    model_config = ConfigDict(json_schema_extra=example(text="The old", tokens=8))
    text: str = ""
    tokens: int = Field(60, ge=1, le=2048)
    samples: int = Field(1, ge=1, le=16)
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = Field(1, ge=0, lt=1 << 63)


class TokensBody(Body):
    model_config = ConfigDict(json_schema_extra=example(texts=["The keel is laid."]))
    texts: list[str]


class ExplainBody(Body):
    model_config = ConfigDict(json_schema_extra=example(text="The keel is laid.", layers=[1]))
    text: str
    pair: str | list[str] | None = Field(None, description="The second text; for choose all choices.")
    method: Literal["attention", "heads", "layers", "attribution"] = "attention"
    label: str | None = Field(None, description="heads, attribution: explain this label, not the predicted one.")
    token: str | None = Field(None, description="heads, attribution: explain this token at [MASK].")
    word: str | None = Field(None, description="heads, attribution: explain the tag of this word.")
    scale: str | None = Field(None, description="heads, attribution: logit, log-probability or probability.")
    by: str | None = Field(None, description="attribution: integrated-gradients or occlusion.")
    baseline: str | None = Field(None, description="attribution: pad, mask or zero.")
    steps: int | None = Field(None, description="attribution: of the integral; default: as many as it takes.")
    top: int | None = Field(None, description="layers: guesses of each layer.")
    layers: list[int] | None = Field(None, description="attention: the weights of these layers only, from 1.")
    heads: list[int] | None = Field(None, description="attention: the weights of these heads only, from 1.")
    encoding: Literal["lists", "base64"] | None = Field(
        None, description="attention: how weights are written; default: lists, base64 beyond a million of them."
    )
    thumbnails: int = Field(0, ge=0, le=256, description="attention: images of all heads, this wide, in their place.")
    rollout: bool = Field(False, description="attention: also its rollout through the layers.")


def router(service: Service) -> APIRouter:
    routes = APIRouter(
        prefix="/v1", tags=["Keel"], route_class=StrictRoute, responses=errors(OpenAIError, 404, *OF_BODIES)
    )
    _encoder_routes(routes, service)
    _text_routes(routes, service)
    _inside_routes(routes, service)
    return routes


def _encoder_routes(routes: APIRouter, service: Service) -> None:
    models = service.models

    @routes.post("/predict", response_model=Answers)
    async def predict(body: PredictBody, request: Request) -> Response:
        """The answers of a fine-tuned model: labels, values, tags, spans, choices."""
        served = models.find(body.model, "predict")
        model = served.model

        def make() -> Work[Any]:
            return model.answer_work([model.example(given, number) for number, given in enumerate(body.inputs, 1)])

        answered = await service.answer(request, flat(body.inputs), make)
        return respond({"model": served.name, "answers": answered.answers, **_lost(answered.truncation)})

    @routes.post("/fill", response_model=Filled)
    async def fill(body: FillBody, request: Request) -> Response:
        """The tokens that a masked language model expects at each [MASK]."""
        served = models.find(body.model, "fill")
        filled = await service.answer(request, body.texts, lambda: served.model.fill_work(body.texts, body.top))
        results = [{"text": text, "masks": masks} for text, masks in zip(body.texts, filled, strict=True)]
        return respond({"model": served.name, "results": results})

    @routes.post("/embed", response_model=Vectors)
    async def embed(body: EmbedBody, request: Request) -> Response:
        """One vector per text."""
        served = models.find(body.model, "embed")
        options: dict[str, Any] = {"normalize": body.normalize, "prompt": body.prompt, "truncate": body.truncate}
        vectors = await service.answer(
            request,
            body.texts,
            lambda: served.model.embed_work(body.texts, body.pooling, body.layers, **options),
        )
        return respond({"model": served.name, "vectors": vectors})


def _text_routes(routes: APIRouter, service: Service) -> None:
    models = service.models

    @routes.post("/generate", response_model=Generated)
    async def generate(body: GenerateBody, request: Request) -> Response:
        """Texts that continue this one."""
        served = models.find(body.model, "generate")
        options = body.model_dump(exclude={"model", "text"})
        found = await service.answer(
            request, [body.text], lambda: alone(lambda: served.apart.generate(body.text, **options)), service.long
        )
        return respond({"model": served.name, "texts": found})

    @routes.post("/translate", response_model=Translations)
    async def translate(body: TranslateBody, request: Request) -> Response:
        """Translations, and the cross-attention of one of them."""
        served = models.find(body.model, "translate")
        answers = await service.answer(
            request, body.texts, lambda: translate_work(served.apart, body.texts), service.long
        )
        result: dict[str, Any] = {"model": served.name, "answers": answers}
        if body.attention:
            if len(body.texts) != 1 or not body.texts[0].strip():
                raise UserError("attention: one text is needed, and it must not be empty")
            _, found = await service.answer(
                request, body.texts, lambda: alone(lambda: attention(served.apart, body.texts[0])), service.long
            )
            result["attention"] = {"written": found.written, "read": found.read, "weights": found.weights}
        return respond(result)


def _inside_routes(routes: APIRouter, service: Service) -> None:
    models = service.models

    @routes.post("/explain", response_model=Explanation)
    async def explain(body: ExplainBody, request: Request) -> Response:
        """What the model computes for a text: attention, heads, layers or attribution."""
        served = models.find(body.model)
        options: dict[str, Any] = body.model_dump(include=set(OPTIONS), exclude_none=True)
        given_up = threading.Event()

        def report(progress: Any) -> None:
            if given_up.is_set():
                raise ClientGone

        if body.method in ("heads", "attribution"):  # those that take seconds
            options["report"] = report

        def explanation() -> dict[str, Any]:
            found = served.apart.explain(body.text, body.pair, body.method, **options)
            shown = body.model_dump(include={"layers", "heads", "encoding", "thumbnails", "rollout"})
            return dict(found.as_json(**(shown if isinstance(found, AttentionMaps) else {})))

        texts = [body.text, *flat(body.pair or [])]
        try:
            found = await service.answer(request, texts, lambda: alone(explanation), service.long)
        finally:
            given_up.set()
        return respond({"model": served.name, **found})

    @routes.post("/tokens", response_model=Tokenized)
    async def tokens(body: TokensBody, request: Request) -> Response:
        """The pieces of each text, with ids, character offsets and word starts."""
        served = models.find(body.model)
        found = await service.answer(request, body.texts, lambda: done([_pieces(served, text) for text in body.texts]))
        return respond({"model": served.name, "texts": found})


def flat(given: Any) -> list[str]:
    """All texts of nested inputs."""
    return [given] if isinstance(given, str) else [text for part in given for text in flat(part)]


def _lost(truncation: Any) -> dict[str, Any]:
    """Nothing is truncated silently."""
    if not truncation.truncated_texts:
        return {}
    return {"truncated_texts": truncation.truncated_texts, "truncated_tokens": truncation.truncated_tokens}


def _pieces(served: ServedModel, text: str) -> dict[str, Any]:
    """The tokens of a text: pieces, ids, character offsets, and which begin a word."""
    tokenizer = served.model.tokenizer
    ids, offsets = tokenizer.encode_with_offsets(text)
    starts = tokenizer.word_starts([np.asarray(ids, np.int32)])[0].tolist() if ids else list[bool]()
    return {
        "text": text,
        "tokens": [
            {
                "text": tokenizer.shown(id) if id < tokenizer.size else tokenizer.token(id),
                "id": id,
                "start": start,
                "end": end,
                "word_start": word,
            }
            for id, (start, end), word in zip(ids, offsets, starts, strict=True)
        ],
    }
