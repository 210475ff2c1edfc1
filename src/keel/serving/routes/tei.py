"""The routes of text-embeddings-inference: `/embed`, `/embed_all`, `/similarity`, `/predict`, `/rerank`, ...

In: its request bodies. Out: its response bodies, for the first model that can answer.

Notable choices
- `/rerank` takes a model fine-tuned on pairs: `regress`, or `classify` with two labels, of which the last is the
  better. Scores are between 0 and 1 (the sigmoid of the number), or as they are with `raw_scores`.
- Long texts of `/predict` and `/rerank` are treated as in training, whatever `truncate` says.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keel import __version__
from keel.inference.work import Work
from keel.serving.json_bodies import StrictRoute
from keel.serving.models import NotServed, ServedModel
from keel.serving.routes._documents import OF_BODIES, Info, Labels, Rank, TeiError, TeiToken, errors, example
from keel.serving.routes._label_scores import FUNCTIONS, label_names, logits, ranked, sigmoid, usual_function
from keel.serving.routes.openai import shorten
from keel.serving.service import Service, done, respond
from keel.tokenizers.library import LibraryTokenizer
from keel.tokenizers.special_tokens import frame

Id = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]
Ids = list[Id]  # of this model's own tokenizer, as /tokenize gives them
Direction = Literal["right", "left", "Right", "Left"]


class Body(BaseModel):
    """Fields that are not known are ignored, as by text-embeddings-inference."""

    model_config = ConfigDict(extra="ignore", strict=True)


class EmbedAllBody(Body):
    model_config = ConfigDict(json_schema_extra=example(inputs=["The keel is laid."]))
    inputs: str | list[str] | Ids | list[str | Ids]
    truncate: bool | None = False
    truncation_direction: Direction = "right"
    prompt_name: str | None = None


class EmbedBody(EmbedAllBody):
    normalize: bool = True
    dimensions: int | None = Field(None, ge=1, description="Keep the first dimensions only.")


class RerankBody(Body):
    model_config = ConfigDict(json_schema_extra=example(query="the keel", texts=["The keel is laid.", "A gull."]))
    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = Field(False, description="Ignored: long texts are treated as in training.")


class PredictBody(Body):
    model_config = ConfigDict(json_schema_extra=example(inputs="The keel is laid."))
    inputs: str | list[str] | list[list[str]] = Field(
        description="A text, a pair of texts, or a list of [text] and [text, text]"
    )
    raw_scores: bool = False
    truncate: bool | None = Field(False, description="Ignored: long texts are treated as in training.")


class SimilarityInputs(Body):
    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Body):
    truncate: bool | None = False
    truncation_direction: Direction = "right"
    prompt_name: str | None = None


class SimilarityBody(Body):
    model_config = ConfigDict(json_schema_extra=example(inputs={"source_sentence": "a", "sentences": ["b"]}))
    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None


class TokenizeBody(Body):
    model_config = ConfigDict(json_schema_extra=example(inputs=["The keel is laid."]))
    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeBody(Body):
    model_config = ConfigDict(json_schema_extra=example(ids=[[5, 6]]))
    ids: Ids | list[Ids]
    skip_special_tokens: bool = True


def router(service: Service) -> APIRouter:
    routes = APIRouter(
        tags=["text-embeddings-inference"],
        route_class=StrictRoute,
        responses=errors(TeiError, 400, 424, *OF_BODIES),
    )
    _embedding_routes(routes, service)
    _answering_routes(routes, service)
    _tokenizer_routes(routes, service)
    return routes


def _embedding_routes(routes: APIRouter, service: Service) -> None:
    @routes.post("/embed", response_model=list[list[float]])
    async def embed(body: EmbedBody, request: Request) -> Response:
        """One vector per text, of length 1 unless `normalize` is off."""
        return respond(await embedded(service, request, find(service, "embed"), body))

    @routes.post("/embed_all", response_model=list[list[list[float]]])
    async def embed_all(body: EmbedAllBody, request: Request) -> Response:
        """One vector per token, those of [CLS] and [SEP] included."""
        served = find(service, "embed")
        texts, options = as_texts(served, body.inputs), read_options(body)
        return respond(await service.answer(request, texts, lambda: served.model.encode_work(texts, **options)))

    @routes.post("/embed_sparse", response_model=None, status_code=424)
    async def embed_sparse(body: EmbedAllBody) -> Response:
        """Refused: no model of Keel's makes sparse vectors."""
        raise HTTPException(424, "no model of this server makes sparse vectors; /embed makes dense ones")

    @routes.post("/similarity", response_model=list[float])
    async def similarity(body: SimilarityBody, request: Request) -> Response:
        """The cosine of the source with each sentence."""
        options = read_options(body.parameters or SimilarityParameters())
        source, sentences = body.inputs.source_sentence, not_empty(body.inputs.sentences)
        return respond(await cosines(service, request, find(service, "embed"), source, sentences, **options))


def _answering_routes(routes: APIRouter, service: Service) -> None:
    @routes.post("/predict", response_model=Labels)
    async def predict(body: PredictBody, request: Request) -> Response:
        """Labels with their scores, the best first."""
        served = next((one for one in service.models if one.task in ("classify", "regress")), None)
        if served is None:
            raise HTTPException(424, "no model of this server gives labels to texts: fine-tune one to classify")
        single, given = _inputs(body.inputs)
        found = await logits(service, request, served, given)
        function = "none" if body.raw_scores else "sigmoid" if found.shape[1] == 1 else usual_function(served)
        labels = ranked(served, FUNCTIONS[function](found))
        return respond(labels[0] if single else labels)

    @routes.post("/rerank", response_model=list[Rank])
    async def rerank(body: RerankBody, request: Request) -> Response:
        """How well each text answers the query, the best first."""
        served = next((one for one in service.models if reranks(one)), None)
        if served is None:
            raise HTTPException(424, "no model of this server compares a query with a text: fine-tune one on pairs")
        pairs = [[body.query, text] for text in not_empty(body.texts)]
        found = await logits(service, request, served, pairs)
        values = found[:, -1] - (found[:, 0] if found.shape[1] == 2 else 0.0)
        scores = values if body.raw_scores else sigmoid(values)
        order = np.argsort(-scores, kind="stable").tolist()
        text = (lambda place: {"text": body.texts[place]}) if body.return_text else (lambda place: {})
        return respond([{"index": place, "score": float(scores[place]), **text(place)} for place in order])


def _tokenizer_routes(routes: APIRouter, service: Service) -> None:
    @routes.post("/tokenize", response_model=list[list[TeiToken]])
    async def tokenize(body: TokenizeBody, request: Request) -> Response:
        """The tokens of each text."""
        served = find(service)
        texts = served.model.prompted(as_texts(served, body.inputs), body.prompt_name)
        found = await service.answer(
            request, texts, lambda: done([_tokens(served, text, body.add_special_tokens) for text in texts])
        )
        return respond(found)

    @routes.post("/decode", response_model=list[str])
    async def decode(body: DecodeBody, request: Request) -> Response:
        """The texts that these tokens stand for."""
        served, rows = find(service), not_empty(body.ids)
        single = isinstance(rows[0], int)
        texts = [_text_of(served, row, body.skip_special_tokens) for row in ([rows] if single else rows)]
        service.check(texts)
        return respond(texts)

    @routes.get("/info", response_model=Info)
    async def info() -> Response:
        """About the first model, and the limits of the server."""
        served = find(service)
        model, settings = served.model, service.settings
        return respond(
            {
                "model_id": served.name,
                "model_sha": None,
                "model_dtype": "float32",
                "model_type": _model_type(served),
                "architecture": model.learner.backbone.config.kind,
                "max_concurrent_requests": settings.max_queue,
                "max_input_length": model.truncated_length,
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


def not_empty(given: Any) -> Any:
    if not given:
        raise HTTPException(400, "the batch is empty; send at least one text")
    return given


def as_texts(served: ServedModel, inputs: str | list[str] | Ids | list[str | Ids]) -> list[str]:
    """The texts, or those that tokens stand for: a flat list of ids is one text."""
    if isinstance(inputs, str):
        return [inputs]
    listed: list[Any] = [inputs] if isinstance(not_empty(inputs)[0], int) else [*inputs]
    return [one if isinstance(one, str) else _text_of(served, one, True) for one in listed]


def read_options(body: EmbedAllBody | SimilarityParameters) -> dict[str, Any]:
    """How texts are read, in the words of `Model.embed`."""
    cut = "left" if body.truncation_direction in ("left", "Left") else True
    return {"prompt": body.prompt_name, "truncate": cut if body.truncate else False}


async def embedded(service: Service, request: Request, served: ServedModel, body: EmbedBody) -> np.ndarray:
    texts, options = as_texts(served, body.inputs), read_options(body)
    work = partial(served.model.embed_work, texts, normalize=body.normalize, **options)
    return shorten(await service.answer(request, texts, work), body.dimensions, body.normalize)


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


def reranks(served: ServedModel) -> bool:
    about = served.describe()
    return bool(about["pair"]) and (
        served.task == "regress" or (served.task == "classify" and len(about["labels"]) == 2)
    )


def _inputs(given: str | list[str] | list[list[str]]) -> tuple[bool, list[Any]]:
    """Whether a single input was given, and the inputs, each a text or a pair: a flat list is one text or one pair."""
    if isinstance(given, str):
        return True, [given]
    single = isinstance(not_empty(given)[0], str)
    found: list[Any] = [given] if single else list(given)
    for one in found:
        if len(one) not in (1, 2):
            raise HTTPException(422, f"an input is one text or a pair of texts, not {len(one)}")
    return single, [one[0] if len(one) == 1 else one for one in found]


def _text_of(served: ServedModel, ids: Ids, skip_special: bool) -> str:
    tokenizer = served.model.tokenizer
    if wrong := next((id for id in ids if id >= tokenizer.size), None):
        raise HTTPException(422, f"the id {wrong} is not in the vocabulary of {tokenizer.size:,}")
    hidden = special_ids(tokenizer) if skip_special else set[int]()
    return tokenizer.decode([id for id in ids if id not in hidden])


def special_ids(tokenizer: LibraryTokenizer) -> set[int]:
    return {tokenizer.cls, tokenizer.sep, tokenizer.pad, tokenizer.mask, tokenizer.unk}


def _model_type(served: ServedModel) -> dict[str, Any]:
    if served.task not in ("classify", "regress"):
        return {"embedding": {"pooling": served.model.sentence_encoder.pooling}}
    names = label_names(served)
    labels = {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }
    return {"reranker" if reranks(served) else "classifier": labels}


def _tokens(served: ServedModel, text: str, special: bool) -> list[dict[str, Any]]:
    """As text-embeddings-inference writes them: a token's text is the part of the text that it covers."""
    tokenizer = served.model.tokenizer
    ids, offsets = tokenizer.encode_with_offsets(text)
    tokens = [
        {"id": id, "text": text[start:stop], "special": False, "start": start, "stop": stop}
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
