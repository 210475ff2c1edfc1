"""Hugging Face's task bodies `{inputs, parameters}` at `/models/{name}`, as InferenceClient sends them; at `/` for the
first model, as text-embeddings-inference takes them.

In: a body of fill-mask, text-classification, token-classification, question-answering, feature-extraction,
sentence-similarity, translation or text-generation. Out: the body that these tasks answer with.

Notable choices
- The client names no task, so it follows from the inputs and from what the model can do;
  `/models/{name}/pipeline/{task}` names it.
- token-classification without an aggregation strategy answers what `keel predict` says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keel.configs import brief
from keel.inference.model import Model
from keel.inference.token_labels import token_label_work
from keel.inference.translate import translate_work
from keel.serving.json_bodies import StrictRoute
from keel.serving.models import ServedModel
from keel.serving.routes import _hugging_face_bodies as bodies
from keel.serving.routes._documents import OF_BODIES, HuggingFaceError, TaskAnswer, TeiError, errors
from keel.serving.routes._label_scores import FUNCTIONS, logits, ranked, usual_function
from keel.serving.routes._token_groups import aggregate
from keel.serving.routes.openai import shorten
from keel.serving.routes.tei import EmbedBody, cosines, embedded, not_empty, predictions, special_ids
from keel.serving.service import Service, alone, respond
from keel.tokenizers.special_tokens import frame

Reply = Any
TASK_NAMES: dict[str | None, str] = {
    "classify": "text-classification",
    "regress": "text-classification",
    "tag": "token-classification",
    "answer": "question-answering",
    "translate": "translation",
}


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["Hugging Face"], route_class=StrictRoute)
    documented: dict[str, Any] = {
        "response_model": TaskAnswer,
        "responses": errors(HuggingFaceError, 400, 404, 424, *OF_BODIES),
    }

    @routes.post("/models/{name}", **documented)
    async def ask(name: str, body: bodies.TaskBody, request: Request) -> Response:
        """A task of this model; which one follows from the inputs and from what the model can do."""
        served = service.models.find(name)
        return respond(await Task(service, request, served, body).answer(guess(served, body.inputs)))

    @routes.post("/models/{name}/pipeline/{task}", **documented)
    async def ask_task(name: str, task: str, body: bodies.TaskBody, request: Request) -> Response:
        """A task of this model, by the task's name on Hugging Face."""
        return respond(await Task(service, request, service.models.find(name), body).answer(task))

    @routes.post("/", response_model=TaskAnswer, responses=errors(TeiError, 400, 404, 424, *OF_BODIES))
    async def ask_first(body: bodies.TaskBody, request: Request) -> Response:
        """One vector per text, of length 1, where the first model does nothing else."""
        served = service.models.find(None)
        task = guess(served, body.inputs)
        if task == "feature-extraction":
            given = {name: value for name, value in body.beside_inputs().items() if value is not None}
            asked = EmbedBody(inputs=Task(service, request, served, body).texts(), **given)
            return respond(await embedded(service, request, served, asked))
        return respond(await Task(service, request, served, body).answer(task))

    return routes


def guess(served: ServedModel, inputs: Any) -> str:
    """The task that these inputs ask for."""
    if isinstance(inputs, bodies.SimilarityInputs):
        return "sentence-similarity"
    if isinstance(inputs, bodies.QuestionInputs):
        return "question-answering"
    if served.task in TASK_NAMES:
        return TASK_NAMES[served.task]
    texts = inputs if isinstance(inputs, list) else [inputs]
    if "fill" in served.abilities and all(_has_mask(served.model, text) for text in texts):
        return "fill-mask"
    return "text-generation" if "generate" in served.abilities else "feature-extraction"


class Task:
    """One request."""

    def __init__(self, service: Service, request: Request, served: ServedModel, body: bodies.TaskBody) -> None:
        self.service, self.request, self.served, self.model = service, request, served, served.model
        self.body, self.inputs = body, body.inputs

    async def answer(self, task: str) -> Reply:
        if task not in TASKS:
            raise HTTPException(404, f"there is no task {brief(task)}; known: {', '.join(TASKS)}")
        kind, answer = TASKS[task]
        given = self.body.parameters or {}
        if kind is bodies.FeatureExtraction:
            given = {**self.body.beside_inputs(), **given}
        return await answer(self, bodies.read_parameters(kind, given, task))

    def texts(self) -> list[str]:
        texts = self.inputs if isinstance(self.inputs, list) else [self.inputs]
        if all(isinstance(one, str) for one in texts):
            return not_empty(texts)
        raise HTTPException(422, "inputs: this task takes a text, or a list of texts")

    def texts_or_pairs(self) -> list[Any]:
        given = self.inputs if isinstance(self.inputs, list) else [self.inputs]
        if any(isinstance(one, bodies.QuestionInputs | bodies.SimilarityInputs) for one in given):
            raise HTTPException(422, "inputs: this task takes texts, or pairs {text, text_pair}")
        return [[one.text, one.text_pair] if isinstance(one, bodies.TextPair) else one for one in not_empty(given)]

    def one_or_all(self, found: list[Any]) -> Reply:
        return found if isinstance(self.inputs, list) else found[0]

    def need(self, ability: str, *tasks: str) -> None:
        self.service.models.find(self.served.name, ability)
        if tasks and self.served.task not in tasks:
            raise HTTPException(422, f"the model '{self.served.name}' was fine-tuned for {self.served.task}")

    async def fill_mask(self, options: bodies.FillMask) -> Reply:
        self.need("fill")
        texts, targets = self.texts(), _target_ids(self.model, options.targets)
        top = self.model.tokenizer.size if targets else options.top_k
        filled = await self.service.answer(self.request, texts, lambda: self.model.fill_work(texts, top))
        found = []
        for text, masks in zip(texts, filled, strict=True):
            if targets:
                masks = [[one for one in mask if one["id"] in targets] for mask in masks]
            replies = _filled(self.model, text, [mask[: options.top_k] for mask in masks])
            found.append(replies[0] if len(replies) == 1 else replies)
        return self.one_or_all(found)

    async def text_classification(self, options: bodies.TextClassification) -> Reply:
        self.need("predict", "classify", "regress")
        found = await logits(self.service, self.request, self.served, self.texts_or_pairs())
        scores = FUNCTIONS[options.function_to_apply or usual_function(self.served)](found)
        return [labels[: options.top_k] for labels in ranked(self.served, scores)]

    async def token_classification(self, options: bodies.TokenClassification) -> Reply:
        self.need("predict", "tag")
        texts, strategy = self.texts(), options.aggregation_strategy
        if strategy is None:
            answers = await predictions(self.service, self.request, self.served, texts)
            return self.one_or_all([_tagged(answer, options.ignore_labels) for answer in answers])
        labels = self.served.describe()["labels"]
        found = await self.service.answer(self.request, texts, lambda: token_label_work(self.model, texts))
        tokenizer, ignored = self.model.tokenizer, options.ignore_labels
        return self.one_or_all([aggregate(one, labels, tokenizer, strategy, ignored) for one in found])

    async def question_answering(self, options: bodies.QuestionAnswering) -> Reply:
        self.need("predict", "answer")
        if not isinstance(self.inputs, bodies.QuestionInputs):
            raise HTTPException(422, "inputs: a question and its context are needed")
        given = [[self.inputs.question, self.inputs.context]]
        (answer,) = await predictions(self.service, self.request, self.served, given)
        found = [
            {"score": best["probability"], "start": best["start"], "end": best["end"], "answer": best["text"]}
            for best in answer["best"]
        ]
        if not found or (options.handle_impossible_answer and not answer["answer"]):
            found.insert(0, {"score": answer["probability"], "start": 0, "end": 0, "answer": ""})
        return found[0] if options.top_k == 1 else found[: options.top_k]

    async def feature_extraction(self, options: bodies.FeatureExtraction) -> Reply:
        """One vector per text from a sentence encoder; from other models one per token."""
        self.need("embed")
        texts, given = self.texts(), _read_options(options)
        if not self.model.sentence_encoder.pooled:
            return await self.service.answer(self.request, texts, lambda: self.model.encode_work(texts, **given))
        unit = self.model.sentence_encoder.normalize if options.normalize is None else options.normalize
        vectors = await self.service.answer(
            self.request, texts, lambda: self.model.embed_work(texts, normalize=unit, **given)
        )
        return shorten(vectors, options.dimensions, unit)

    async def sentence_similarity(self, options: bodies.Similarity) -> Reply:
        self.need("embed")
        if not isinstance(self.inputs, bodies.SimilarityInputs):
            raise HTTPException(422, "inputs: a source_sentence and sentences are needed")
        source, sentences = self.inputs.source_sentence, not_empty(self.inputs.sentences)
        return await cosines(self.service, self.request, self.served, source, sentences, **_read_options(options))

    async def translation(self, options: bodies.Translation) -> Reply:
        self.need("translate")
        texts = self.texts()
        answers = await self.service.answer(
            self.request, texts, lambda: translate_work(self.served.apart, texts), self.service.long
        )
        return [{"translation_text": answer["translation"]} for answer in answers]

    async def text_generation(self, options: bodies.TextGeneration) -> Reply:
        self.need("generate")
        texts = self.texts()
        if len(texts) > 1:
            raise HTTPException(422, "inputs: text-generation takes one text")
        chosen: dict[str, Any] = {
            "tokens": options.max_new_tokens,
            "temperature": 0.0 if options.do_sample is False else options.temperature,
            "top_k": options.top_k,
            "top_p": options.top_p,
            "seed": options.seed,
        }
        (found,) = await self.service.answer(
            self.request,
            texts,
            lambda: alone(lambda: self.served.apart.generate(texts[0], **chosen)),
            self.service.long,
        )
        whole = options.return_full_text
        return [{"generated_text": found["text"] if whole else found["text"].removeprefix(texts[0]).strip()}]


Answering = Callable[[Task, Any], Awaitable[Reply]]
TASKS: dict[str, tuple[type[bodies.Parameters], Answering]] = {
    "fill-mask": (bodies.FillMask, Task.fill_mask),
    "text-classification": (bodies.TextClassification, Task.text_classification),
    "token-classification": (bodies.TokenClassification, Task.token_classification),
    "question-answering": (bodies.QuestionAnswering, Task.question_answering),
    "feature-extraction": (bodies.FeatureExtraction, Task.feature_extraction),
    "sentence-similarity": (bodies.Similarity, Task.sentence_similarity),
    "translation": (bodies.Translation, Task.translation),
    "text-generation": (bodies.TextGeneration, Task.text_generation),
}


def _has_mask(model: Model, text: Any) -> bool:
    return isinstance(text, str) and ("[MASK]" in text or model.tokenizer.token(model.tokenizer.mask) in text)


def _read_options(options: bodies.Similarity) -> dict[str, Any]:
    """How texts are read, in the words of `Model.embed`."""
    cut = "left" if options.truncation_direction in ("left", "Left") else True
    return {"prompt": options.prompt_name, "truncate": cut if options.truncate else False}


def _target_ids(model: Model, targets: Sequence[str] | None) -> set[int]:
    """The ids of these tokens; of a word that is no token, that of its first, as in transformers' pipeline."""
    if targets is None:
        return set()
    tokenizer = model.tokenizer
    known = {token: id for id, token in enumerate(tokenizer.vocabulary)} if targets else {}
    found = set[int]()
    for target in targets:
        first = [known[target]] if target in known else tokenizer.encode([target])[0][:1].tolist()
        if not first:
            raise HTTPException(422, f"parameters.targets: {brief(target)} has no token")
        found.update(first)
    return found


def _filled(model: Model, text: str, masks: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """For each mask its predictions, with the text that each makes; if there are several with the special tokens, as
    in transformers' pipeline."""
    tokenizer = model.tokenizer
    tokens = np.asarray(tokenizer.encode_with_offsets(tokenizer.with_masks(text))[0], np.int64)
    ids = tokens if len(masks) == 1 else frame(tokenizer, [tokens])[0]
    hidden = special_ids(tokenizer) if len(masks) == 1 else set[int]()
    found = []
    for place, best in zip(np.flatnonzero(ids == tokenizer.mask), masks, strict=True):
        replies = []
        for one in best:
            ids[place] = one["id"]
            sequence = tokenizer.decode([id for id in ids.tolist() if id not in hidden])
            reply = {"score": one["probability"], "token": one["id"], "token_str": one["token"]}
            replies.append({**reply, "sequence": sequence})
        ids[place] = tokenizer.mask
        found.append(replies)
    return found


def _tagged(answer: dict[str, Any], ignored: Sequence[str]) -> list[dict[str, Any]]:
    """What `keel predict` says: entities, or the words of a tagger that has none."""
    found = answer.get("entities") or answer.get("words") or []
    return [
        {
            "entity_group": one["label"],
            "score": one["probability"],
            "word": one["text"],
            "start": one["start"],
            "end": one["end"],
        }
        for one in found
        if one["label"] not in ignored
    ]
