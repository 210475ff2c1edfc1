"""Hugging Face's task bodies `{inputs, parameters}` at `/models/{name}`, as InferenceClient sends them.

In: a body of fill-mask, text-classification, token-classification, question-answering, feature-extraction,
sentence-similarity, translation or text-generation. Out: the body that these tasks answer with.

Notable choice: the client names no task, so it follows from the inputs and from what the model can do;
`/models/{name}/pipeline/{task}` names it.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keel.configs import brief
from keel.inference.model import Model
from keel.inference.translate import translate_work
from keel.serving.models import ServedModel
from keel.serving.routes.openai import shorten
from keel.serving.routes.tei import cosines, predictions, ranked_labels
from keel.serving.service import Service, alone, respond
from keel.text.word_spans import word_spans

TARGETS = 100  # of fill-mask
Reply = Any


class QuestionInputs(BaseModel):
    question: str
    context: str


class SimilarityInputs(BaseModel):
    source_sentence: str
    sentences: list[str]


class Parameters(BaseModel):
    """Of all tasks; those that Keel has no use for are ignored, as the clients send them without being asked."""

    model_config = ConfigDict(extra="ignore")
    top_k: int | None = Field(None, ge=1, le=1000)
    targets: list[str] | None = Field(None, max_length=TARGETS)
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = None
    normalize: bool | None = None
    truncate: bool | None = None
    prompt_name: str | None = None
    dimensions: int | None = Field(None, ge=1)
    handle_impossible_answer: bool | None = None
    max_new_tokens: int | None = Field(None, ge=1, le=2048)
    temperature: float | None = None
    top_p: float | None = None
    do_sample: bool | None = None
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    return_full_text: bool | None = None


class TaskBody(BaseModel):
    model_config = ConfigDict(extra="ignore")
    inputs: str | list[str] | QuestionInputs | SimilarityInputs
    parameters: Parameters | None = None


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["Hugging Face"])

    @routes.post("/models/{name}")
    async def ask(name: str, body: TaskBody, request: Request) -> Response:
        served = service.models.find(name)
        return respond(await Task(service, request, served, body).answer(guess(served, body.inputs)))

    @routes.post("/models/{name}/pipeline/{task}")
    async def ask_task(name: str, task: str, body: TaskBody, request: Request) -> Response:
        return respond(await Task(service, request, service.models.find(name), body).answer(task))

    return routes


def guess(served: ServedModel, inputs: Any) -> str:
    """The task that these inputs ask for."""
    if isinstance(inputs, SimilarityInputs):
        return "sentence-similarity"
    if isinstance(inputs, QuestionInputs):
        return "question-answering"
    if served.task in TASK_NAMES:
        return TASK_NAMES[served.task]
    texts = [inputs] if isinstance(inputs, str) else inputs
    if "fill" in served.abilities and all(_has_mask(served.model, text) for text in texts):
        return "fill-mask"
    return "text-generation" if "generate" in served.abilities else "feature-extraction"


TASK_NAMES: dict[str | None, str] = {
    "classify": "text-classification",
    "regress": "text-classification",
    "tag": "token-classification",
    "answer": "question-answering",
    "translate": "translation",
}


class Task:
    """One request."""

    def __init__(self, service: Service, request: Request, served: ServedModel, body: TaskBody) -> None:
        self.service, self.request, self.served, self.model = service, request, served, served.model
        self.inputs: Any = body.inputs
        self.options = body.parameters or Parameters()

    async def answer(self, task: str) -> Reply:
        methods = {
            "fill-mask": self.fill_mask,
            "text-classification": self.text_classification,
            "token-classification": self.token_classification,
            "question-answering": self.question_answering,
            "feature-extraction": self.feature_extraction,
            "sentence-similarity": self.sentence_similarity,
            "translation": self.translation,
            "text-generation": self.text_generation,
        }
        if task not in methods:
            raise HTTPException(404, f"there is no task {brief(task)}; known: {', '.join(methods)}")
        return await methods[task]()

    def texts(self) -> list[str]:
        if isinstance(self.inputs, str):
            return [self.inputs]
        if isinstance(self.inputs, list):
            return self.inputs
        raise HTTPException(422, "inputs: this task takes a text, or a list of texts")

    def _one_or_all(self, found: list[Any]) -> Reply:
        return found[0] if isinstance(self.inputs, str) else found

    def _need(self, ability: str, *tasks: str) -> None:
        self.service.models.find(self.served.name, ability)
        if tasks and self.served.task not in tasks:
            raise HTTPException(422, f"the model '{self.served.name}' was fine-tuned for {self.served.task}")

    async def fill_mask(self) -> Reply:
        self._need("fill")
        texts, targets = self.texts(), self.options.targets
        top = self.model.tokenizer.size if targets else self.options.top_k or 5
        filled = await self.service.answer(self.request, texts, lambda: self.model.fill_work(texts, top))
        found = []
        for text, masks in zip(texts, filled, strict=True):
            if targets:
                masks = [_only(self.model, ranked, targets) for ranked in masks]
            replies = [_filled(self.model, text, place, ranked) for place, ranked in enumerate(masks)]
            found.append(replies[0] if len(replies) == 1 else replies)
        return self._one_or_all(found)

    async def text_classification(self) -> Reply:
        self._need("predict", "classify", "regress")
        answers = await predictions(self.service, self.request, self.served, self.texts())
        return [ranked_labels(answer)[: self.options.top_k] for answer in answers]

    async def token_classification(self) -> Reply:
        self._need("predict", "tag")
        texts = self.texts()
        answers = await predictions(self.service, self.request, self.served, texts)
        pieces = self.options.aggregation_strategy == "none"
        return self._one_or_all([_tagged(text, a, pieces) for text, a in zip(texts, answers, strict=True)])

    async def question_answering(self) -> Reply:
        self._need("predict", "answer")
        if not isinstance(self.inputs, QuestionInputs):
            raise HTTPException(422, "inputs: a question and its context are needed")
        given = [[self.inputs.question, self.inputs.context]]
        (answer,) = await predictions(self.service, self.request, self.served, given)
        found = [
            {"score": best["probability"], "start": best["start"], "end": best["end"], "answer": best["text"]}
            for best in answer["best"]
        ]
        nothing = {"score": answer["probability"], "start": 0, "end": 0, "answer": ""}
        if not found or (self.options.handle_impossible_answer and not answer["answer"]):
            found.insert(0, nothing)
        return found[0] if (self.options.top_k or 1) == 1 else found[: self.options.top_k]

    async def feature_extraction(self) -> Reply:
        self._need("embed")
        texts, options = self.texts(), self.options
        given: dict[str, Any] = {"prompt": options.prompt_name, "truncate": bool(options.truncate)}
        if not self.model.sentence_encoder.pooled:
            return await self.service.answer(self.request, texts, lambda: self.model.encode_work(texts, **given))
        vectors = await self.service.answer(
            self.request, texts, lambda: self.model.embed_work(texts, normalize=options.normalize, **given)
        )
        if options.dimensions is None:
            return vectors
        return (
            shorten(vectors, options.dimensions)
            if options.normalize
            else np.ascontiguousarray(vectors[:, : options.dimensions])
        )

    async def sentence_similarity(self) -> Reply:
        self._need("embed")
        if not isinstance(self.inputs, SimilarityInputs):
            raise HTTPException(422, "inputs: a source_sentence and sentences are needed")
        return await cosines(
            self.service, self.request, self.served, self.inputs.source_sentence, self.inputs.sentences
        )

    async def translation(self) -> Reply:
        self._need("translate")
        texts = self.texts()
        answers = await self.service.answer(self.request, texts, lambda: translate_work(self.model, texts))
        return [{"translation_text": answer["translation"]} for answer in answers]

    async def text_generation(self) -> Reply:
        self._need("generate")
        (text,) = self.texts()[:1] or [""]
        options = self.options
        chosen: dict[str, Any] = {
            "tokens": options.max_new_tokens or 60,
            "temperature": 0.0 if options.do_sample is False else options.temperature or 1.0,
            "top_k": options.top_k,
            "top_p": options.top_p,
            "seed": options.seed or 1,
        }
        (found,) = await self.service.answer(
            self.request, [text], lambda: alone(lambda: self.model.generate(text, **chosen))
        )
        new = found["text"] if options.return_full_text is not False else found["text"].removeprefix(text).strip()
        return [{"generated_text": new}]


def _has_mask(model: Model, text: str) -> bool:
    return "[MASK]" in text or model.tokenizer.token(model.tokenizer.mask) in text


def _only(model: Model, ranked: list[dict[str, Any]], targets: list[str]) -> list[dict[str, Any]]:
    """The predictions that are among the targets: the first token of each, as in transformers' pipeline."""
    ids = {int(ids[0]) for ids in model.tokenizer.encode(targets) if len(ids)}
    return [one for one in ranked if one["id"] in ids]


def _filled(model: Model, text: str, place: int, ranked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tokenizer = model.tokenizer
    ids, _ = tokenizer.encode_with_offsets(tokenizer.with_masks(text))
    masked = [number for number, id in enumerate(ids) if id == tokenizer.mask]
    found = []
    for one in ranked:
        row = [*ids]
        row[masked[place]] = one["id"]
        sequence = tokenizer.decode(row).strip()
        found.append({"score": one["probability"], "token": one["id"], "token_str": one["token"], "sequence": sequence})
    return found


def _tagged(text: str, answer: dict[str, Any], pieces: bool) -> list[dict[str, Any]]:
    """Entities, or words with their tags: all words of a tagger that has no entities, those of entities otherwise."""
    if "words" in answer:
        key = "entity" if pieces else "entity_group"
        return [
            {key: w["label"], "score": w["probability"], "word": w["text"], "start": w["start"], "end": w["end"]}
            for w in answer["words"]
        ]
    if not pieces:
        return [
            {
                "entity_group": one["label"],
                "score": one["probability"],
                "word": one["text"],
                "start": one["start"],
                "end": one["end"],
            }
            for one in answer["entities"]
        ]
    found = []
    for index, ((start, end), tag) in enumerate(zip(word_spans(text), answer["tags"], strict=True), 1):
        inside = [one for one in answer["entities"] if one["start"] <= start and end <= one["end"]]
        for one in inside:
            found.append(
                {
                    "entity": tag,
                    "score": one["probability"],
                    "index": index,
                    "word": text[start:end],
                    "start": start,
                    "end": end,
                }
            )
    return found
