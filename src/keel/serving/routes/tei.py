"""The routes of text-embeddings-inference: `/embed`, `/embed_all`, `/similarity`, `/predict`, `/rerank`, ...

In: its request bodies. Out: its response bodies, for the first model that can answer.

Notable choice: `/rerank` takes a model fine-tuned on pairs: the value of `regress`, or the probability of the last
label of `classify` with two labels.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keel import __version__
from keel.inference.work import Work
from keel.serving.models import NotServed, ServedModel
from keel.serving.routes.openai import shorten
from keel.serving.service import Service, done, respond
from keel.tokenizers.special_tokens import frame

Id = Annotated[int, Field(ge=0, lt=1 << 31)]


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class EmbedBody(Body):
    inputs: str | list[str]
    normalize: bool = True
    truncate: bool | None = False
    truncation_direction: Literal["right", "Right"] = "right"
    prompt_name: str | None = None
    dimensions: int | None = Field(None, ge=1)


class EmbedAllBody(Body):
    inputs: str | list[str]
    truncate: bool | None = False
    prompt_name: str | None = None


class RerankBody(Body):
    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = False


class PredictBody(Body):
    inputs: str | list[str] | list[list[str]]
    raw_scores: bool = False
    truncate: bool | None = False


class SimilarityInputs(Body):
    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Body):
    truncate: bool | None = False
    prompt_name: str | None = None


class SimilarityBody(Body):
    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None


class TokenizeBody(Body):
    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeBody(Body):
    ids: list[Id] | list[list[Id]]
    skip_special_tokens: bool = True


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["text-embeddings-inference"])
    _embedding_routes(routes, service)
    _answering_routes(routes, service)
    _tokenizer_routes(routes, service)
    return routes


def _embedding_routes(routes: APIRouter, service: Service) -> None:
    @routes.post("/embed")
    async def embed(body: EmbedBody, request: Request) -> Response:
        served, texts = find(service, "embed"), listed(body.inputs)
        options: dict[str, Any] = {
            "normalize": body.normalize,
            "prompt": body.prompt_name,
            "truncate": bool(body.truncate),
        }
        vectors = await service.answer(request, texts, lambda: served.model.embed_work(texts, **options))
        if body.dimensions is not None and body.normalize:
            vectors = shorten(vectors, body.dimensions)
        return respond(vectors if body.dimensions is None else np.ascontiguousarray(vectors[:, : body.dimensions]))

    @routes.post("/embed_all")
    async def embed_all(body: EmbedAllBody, request: Request) -> Response:
        served, texts = find(service, "embed"), listed(body.inputs)
        options: dict[str, Any] = {"prompt": body.prompt_name, "truncate": bool(body.truncate)}
        return respond(await service.answer(request, texts, lambda: served.model.encode_work(texts, **options)))

    @routes.post("/similarity")
    async def similarity(body: SimilarityBody, request: Request) -> Response:
        parameters = body.parameters or SimilarityParameters()
        options: dict[str, Any] = {"prompt": parameters.prompt_name, "truncate": bool(parameters.truncate)}
        inputs = body.inputs
        return respond(
            await cosines(service, request, find(service, "embed"), inputs.source_sentence, inputs.sentences, **options)
        )


def _answering_routes(routes: APIRouter, service: Service) -> None:
    @routes.post("/predict")
    async def predict(body: PredictBody, request: Request) -> Response:
        served = find(service, "predict")
        single, given = _inputs(body.inputs)
        answers = await predictions(service, request, served, given)
        ranked = [ranked_labels(answer) for answer in answers]
        return respond(ranked[0] if single else ranked)

    @routes.post("/rerank")
    async def rerank(body: RerankBody, request: Request) -> Response:
        served = next((one for one in service.models if reranks(one)), None)
        if served is None:
            raise HTTPException(424, "no model of this server compares a query with a text: fine-tune one on pairs")
        answers = await predictions(service, request, served, [[body.query, text] for text in body.texts])
        scores = [answer["value"] if "value" in answer else _last_label(served, answer) for answer in answers]
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        text = (lambda place: {"text": body.texts[place]}) if body.return_text else (lambda place: {})
        return respond([{"index": place, "score": scores[place], **text(place)} for place in order])


def _tokenizer_routes(routes: APIRouter, service: Service) -> None:
    @routes.post("/tokenize")
    async def tokenize(body: TokenizeBody, request: Request) -> Response:
        served, texts = find(service), listed(body.inputs)
        found = [_tokens(served, text, body.add_special_tokens) for text in texts] if service.check(texts) else []
        return respond(found)

    @routes.post("/decode")
    async def decode(body: DecodeBody, request: Request) -> Response:
        tokenizer = find(service).model.tokenizer
        rows = [[id] if isinstance(id, int) else id for id in body.ids]
        if all(isinstance(id, int) for id in body.ids):
            rows = [[id for row in rows for id in row]]
        special = {tokenizer.cls, tokenizer.sep, tokenizer.pad, tokenizer.mask} if body.skip_special_tokens else set()

        def texts() -> list[str]:
            kept = [[id for id in row if id not in special] for row in rows]
            if wrong := next((id for row in kept for id in row if id >= tokenizer.size), None):
                raise HTTPException(422, f"the id {wrong} is not in the vocabulary of {tokenizer.size:,}")
            return [tokenizer.decode(row) for row in kept]

        service.check(["" for _ in rows])
        return respond(await service.answer(request, [""], lambda: done(texts())))

    @routes.get("/info")
    async def info() -> Response:
        served = find(service)
        model, settings = served.model, service.settings
        kinds = {"classify": "classifier", "regress": "reranker"}
        config = model.learner.backbone.config
        return respond(
            {
                "model_id": served.name,
                "model_sha": None,
                "model_dtype": "float32",
                "model_type": {kinds.get(served.task or "", "embedding"): {"pooling": model.sentence_encoder.pooling}},
                "architecture": config.kind,
                "max_concurrent_requests": settings.max_queue,
                "max_input_length": model.learner.backbone.max_length,
                "max_batch_tokens": settings.max_batch_tokens,
                "max_batch_requests": None,
                "max_client_batch_size": settings.max_texts,
                "auto_truncate": False,
                "tokenization_workers": 1,
                "version": __version__,
                "served_models": [one.name for one in service.models],
            }
        )


def find(service: Service, *abilities: str) -> ServedModel:
    """The first model with this ability; as text-embeddings-inference answers where there is none."""
    try:
        return service.models.find(None, *abilities)
    except NotServed as error:
        raise HTTPException(424, str(error)) from None


def listed(inputs: str | list[str]) -> list[str]:
    return [inputs] if isinstance(inputs, str) else inputs


async def predictions(service: Service, request: Request, served: ServedModel, given: list[Any]) -> list[Any]:
    """The answers of the model's task."""
    model = served.model

    def make() -> Work[Any]:
        return model.answer_work([model.example(one, number) for number, one in enumerate(given, 1)])

    texts = [text for one in given for text in ([one] if isinstance(one, str) else one)]
    answers: list[Any] = (await service.answer(request, texts, make)).answers
    return answers


async def cosines(
    service: Service, request: Request, served: ServedModel, source: str, sentences: list[str], **options: Any
) -> np.ndarray:
    """(sentences,): the cosine of the source with each."""
    service.check(sentences)
    texts = [source, *sentences]
    vectors = await service.answer(request, texts, lambda: served.model.embed_work(texts, normalize=True, **options))
    found: np.ndarray = vectors[1:] @ vectors[0]
    return found


def ranked_labels(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Labels with scores, the best first; a number is its own only label."""
    if "value" in answer:
        return [{"label": "value", "score": answer["value"]}]
    if "probabilities" not in answer or not isinstance(answer["probabilities"], dict):
        raise HTTPException(424, "this model gives no labels to whole texts; ask /v1/predict")
    return [{"label": label, "score": score} for label, score in answer["probabilities"].items()]


def reranks(served: ServedModel) -> bool:
    about = served.describe()
    return bool(about["pair"]) and (
        served.task == "regress" or (served.task == "classify" and len(about["labels"]) == 2)
    )


def _last_label(served: ServedModel, answer: dict[str, Any]) -> float:
    return float(answer["probabilities"].get(served.describe()["labels"][-1], 0.0))


def _inputs(given: str | list[str] | list[list[str]]) -> tuple[bool, list[Any]]:
    """Whether a single input was given, and the inputs, each a text or a pair: a flat list is one text or one pair."""
    if isinstance(given, str):
        return True, [given]
    single = any(isinstance(one, str) for one in given)
    found: list[Any] = [given] if single else list(given)
    for one in found:
        if len(one) not in (1, 2):
            raise HTTPException(422, f"an input is one text or a pair of texts, not {len(one)}")
    return single, [one[0] if len(one) == 1 else one for one in found]


def _tokens(served: ServedModel, text: str, special: bool) -> list[dict[str, Any]]:
    tokenizer = served.model.tokenizer
    ids, offsets = tokenizer.encode_with_offsets(text)
    tokens = [
        {"id": id, "text": tokenizer.token(id), "special": False, "start": start, "stop": stop}
        for id, (start, stop) in zip(ids, offsets, strict=True)
    ]
    if not special:
        return tokens
    row, _, marks = frame(tokenizer, [np.asarray(ids, np.int64)])
    inside = iter(tokens)
    return [
        {"id": int(id), "text": tokenizer.token(int(id)), "special": True, "start": None, "stop": None}
        if mark
        else next(inside)
        for id, mark in zip(row, marks, strict=True)
    ]
