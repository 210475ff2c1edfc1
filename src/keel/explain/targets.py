"""What an explanation is about: one number that a model gives for a text, such as the logit of its answer.

In: a model, a text, which answer. Out: a `Target`: the row that is read, and `score`: rows like it -> one number each.

task        the number (`scale`)                                             which answer
classify    logit | log-probability | probability of a label                 `label`; default: the predicted one
regress     the value
tag         the same as classify, of the label of one word                   `word`, `label`; default: the first entity
answer      the sum of the start and the end logit of a span                 the predicted one
choose      the score of a choice                                            the predicted one
[MASK]      log-probability | logit | probability, mean over the masks       `token`; default: the most probable at each
causal_lm   the same for the token after the text                            `token`
none        cosine of the vectors of text and pair, or of text and itself    (an encoder without a head)

Notable choice: `score` calls the objective's own `predict`, so a target is the number behind the answer of
`keel predict` and `keel fill`, not another implementation of the head.

Shapes: R rows, n tokens of a row, C classes, M masks, V vocabulary, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from keel.errors import UserError, suggest
from keel.explain.reading import ExplainedModel, Reading, read, read_for_task
from keel.interfaces import CachedEncoder
from keel.layers.pooling import mean_of_rows
from keel.learner.windows import to_rows
from keel.tasks.answer import Answer
from keel.tasks.choose import Choose
from keel.tasks.classify import Classify
from keel.tasks.tag import Tag, TagObjective
from keel.values import Batch, Inspection

SCALES = ("logit", "log-probability", "probability")
Score = Callable[[CachedEncoder, Batch], Tensor]


@dataclass(frozen=True)
class Done:
    """How far a slow explanation is, for a progress bar."""

    done: int
    total: int


Report = Callable[[Done], None]


@dataclass(frozen=True)
class Choice:
    """Which answer to explain, and on which scale; None: the model's own answer, and the usual scale."""

    label: str | None = None
    token: str | None = None
    word: str | None = None
    scale: str | None = None


@dataclass(frozen=True)
class Target:
    model: ExplainedModel
    reading: Reading
    answer: dict[str, Any]  # what is explained, as JSON
    score: Score  # (R,) for a batch of R rows
    targets: Callable[[int], dict[str, Any]] | None = None  # of a batch of so many rows; None: the task's own
    places: tuple[int, ...] = ()  # tokens at which tokens are predicted
    keep: tuple[int, ...] = ()  # those of them that are the question and nothing that was read: [MASK]

    def batch(self, ids: np.ndarray, inspection: Inspection | None = None) -> Batch:
        """(R, n) ids in place of the row's own, as a batch."""
        rows = to_rows([replace(self.reading.window, ids=row) for row in ids])
        model = self.model
        if self.targets is None:
            batch = model.learner.prepare(rows, model.tokenizer, model.device)
        else:
            batch = model.learner.batch(rows, model.tokenizer, self.targets(len(ids)), model.device)
        return replace(batch, inspection=inspection)

    def scores(self, ids: np.ndarray, inspection: Inspection | None = None) -> Tensor:
        """(R,)"""
        return self.score(self.model.learner.encoder(), self.batch(ids, inspection)).float()

    @property
    def ids(self) -> np.ndarray:
        """(1, n)"""
        return self.reading.ids[None]

    @property
    def name(self) -> str:
        return str(self.answer["name"])


def find_target(
    model: ExplainedModel, text: str, pair: Any, choice: Choice, scales: tuple[str, str], vectors: bool = False
) -> Target:
    """`scales`: the usual ones of a label, and of a predicted token. `vectors`: without a head, the vector of the text
    or pair is compared with itself; else that of the text with that of the pair."""
    if choice.scale not in (None, *SCALES):
        raise UserError(f"unknown scale '{choice.scale}'; choose {', '.join(SCALES)}")
    objectives = model.learner.objectives
    if model.task is not None:
        _refuse(choice, "token")
        for kind, make in TASKS.items():
            if kind == model.task.config.kind:
                with torch.no_grad():
                    return make(model, text, pair, replace(choice, scale=choice.scale or scales[0]))
        raise UserError(
            f"{model.path}: answers of {model.task.config.kind} cannot be explained, only {', '.join(TASKS)}"
        )
    _refuse(choice, "label", "word")
    choice = replace(choice, scale=choice.scale or scales[1])
    with torch.no_grad():
        if "masked_lm" in objectives:
            reading = read(model, text, pair)
            if model.tokenizer.mask in reading.ids:
                return _masked(model, reading, choice)
        if "causal_lm" in objectives:
            return _next_token(model, text, pair, choice)
        if choice.token is not None:
            raise UserError(
                "there is no [MASK] in the text, so no token is predicted; put one where the token would be"
                if "masked_lm" in objectives
                else f"{model.path}: this model predicts no tokens; leave out --token"
            )
        return _same_vector(model, text, pair) if vectors else _similarity(model, text, pair)


def _refuse(choice: Choice, *names: str) -> None:
    for name in names:
        if {"label": choice.label, "word": choice.word, "token": choice.token}[name] is not None:
            raise UserError(f"this model's answer has no {name} to explain; leave out --{name}")


def scaled(logits: Tensor, index: Tensor | int, scale: str | None, independent: bool = False) -> Tensor:
    """(...): one class of (..., C) logits on a scale. `independent`: each class has a probability of its own."""
    logits = logits.float()
    if scale == "probability":
        logits = logits.sigmoid() if independent else logits.softmax(-1)
    elif scale == "log-probability":
        logits = F.logsigmoid(logits) if independent else logits.log_softmax(-1)
    if isinstance(index, int):
        return logits[..., index]
    return logits.gather(-1, index[..., None]).squeeze(-1)


def predict(target: Target) -> np.ndarray:
    """The outputs of the model's only objective for the row, as in `keel predict`."""
    (objective,) = target.model.learner.objectives.values()
    found: np.ndarray = (
        objective.predict(target.model.learner.encoder(), target.batch(target.ids)).float().cpu().numpy()
    )
    return found


def _known(name: str, given: str | None, labels: list[str]) -> int | None:
    if given is None:
        return None
    if given not in labels:
        raise UserError(f"there is no {name} '{given}'.{suggest(given, labels)}")
    return labels.index(given)


def _unscored(encoder: CachedEncoder, batch: Batch) -> Tensor:
    raise AssertionError("this target is only read")


def _one_text(model: ExplainedModel, text: str, pair: Any) -> Target:
    """A row of a task whose input is a text, or a pair."""
    texts = [text] if pair is None else [text, pair]
    return Target(model, read_for_task(model, text if pair is None else (text, pair), texts), {}, _unscored)


def _classify(model: ExplainedModel, text: str, pair: Any, choice: Choice) -> Target:
    _refuse(choice, "word")
    task, objective = model.task, model.learner.objectives["classify"]
    assert isinstance(task, Classify)
    labels, several = task.config.labels or [], task.config.multi_label
    target = _one_text(model, text, pair)
    found = _known("label", choice.label, labels)
    index = int(predict(target)[0].argmax()) if found is None else found
    answer = {"kind": "label", "name": f"{choice.scale} of the label {labels[index]}", "label": labels[index]}
    return replace(
        target,
        answer=answer | {"scale": choice.scale},
        score=lambda encoder, batch: scaled(objective.predict(encoder, batch), index, choice.scale, several),
    )


def _regress(model: ExplainedModel, text: str, pair: Any, choice: Choice) -> Target:
    _refuse(choice, "label", "word")
    objective = model.learner.objectives["regress"]
    return replace(
        _one_text(model, text, pair),
        answer={"kind": "value", "name": "the value", "scale": "value"},
        score=lambda encoder, batch: objective.predict(encoder, batch)[:, 0],
    )


def _tag(model: ExplainedModel, text: str, pair: Any, choice: Choice) -> Target:
    task, objective = model.task, model.learner.objectives["tag"]
    assert isinstance(task, Tag) and isinstance(objective, TagObjective)
    if pair is not None:
        raise UserError("this model tags the words of one text; leave out the pair")
    labels = task.config.labels or []
    target = Target(model, read_for_task(model, text, [text]), {}, _unscored)
    words, predicted = task.example(text).words, predict(target)[:, 0].astype(int)
    place_of = {word: place for place, shared in enumerate(target.reading.window.place) for word in shared}
    names = [text[start:end] for start, end in words]
    if choice.word is not None and choice.word not in names:
        raise UserError(f"there is no word '{choice.word}' in the text.{suggest(choice.word, names)}")
    entities = (word for word in sorted(place_of) if labels[predicted[place_of[word]]] != "O")
    word = next(entities, min(place_of)) if choice.word is None else names.index(choice.word)
    if word not in place_of:
        raise UserError(f"the tokenizer drops the word '{names[word]}', so it has no label")
    place, found = place_of[word], _known("label", choice.label, labels)
    index = int(predicted[place]) if found is None else found
    start, end = words[word]
    name = f"{choice.scale} of the label {labels[index]} at '{names[word]}'"
    answer = {"kind": "tag", "name": name, "label": labels[index], "word": names[word], "start": start, "end": end}

    def score(encoder: CachedEncoder, batch: Batch) -> Tensor:
        logits = objective.logits(encoder, batch).unflatten(0, (len(batch.lengths), -1))  # of a CRF: its emissions
        return scaled(logits[:, place], index, choice.scale)

    return replace(target, answer=answer | {"scale": choice.scale}, score=score)


def _answer(model: ExplainedModel, text: str, pair: Any, choice: Choice) -> Target:
    _refuse(choice, "label", "word")
    task, objective = model.task, model.learner.objectives["answer"]
    assert isinstance(task, Answer)
    if pair is None:
        raise UserError("a question needs the text that answers it: give it as the pair")
    target = _one_text(model, text, pair)
    window = target.reading.window
    (found,) = task.answer([task.example((text, pair))], [window], [predict(target)])
    first = last = 0  # [CLS]: no answer
    if found["start"] is not None:
        offsets, before = window.place.offsets, window.place.first
        first = before + next(n for n, span in enumerate(offsets) if span[0] == found["start"])
        last = before + next(n for n, span in enumerate(offsets) if span[1] == found["end"] and n >= first - before)
    shown = found["answer"] or "no answer"
    answer = {"kind": "span", "name": f"start and end logit of '{shown}'", "span": shown, "scale": "logit"}

    def score(encoder: CachedEncoder, batch: Batch) -> Tensor:
        logits = objective.predict(encoder, batch).unflatten(0, (len(batch.lengths), -1))
        return logits[:, first, 0] + logits[:, last, 1]

    return replace(target, answer=answer | {"start": found["start"], "end": found["end"]}, score=score)


def _choose(model: ExplainedModel, text: str, pair: Any, choice: Choice) -> Target:
    _refuse(choice, "word")
    objective, task = model.learner.objectives["choose"], model.task
    assert isinstance(task, Choose)
    choices: list[str] = [pair] if isinstance(pair, str) else list(pair or ())
    if len(choices) < 2 or not all(isinstance(one, str) for one in choices):
        raise UserError("a text and at least two choices are needed: give the choices as the pair")
    found = _known("choice", choice.label, choices)
    index = int(model.predict([(text, choices)])[0]["choice"]) if found is None else found
    reading = read_for_task(model, (text, choices), [text, choices[index]], index)
    return Target(
        model,
        reading,
        {"kind": "choice", "name": f"score of the choice '{choices[index]}'", "choice": index, "scale": "logit"},
        lambda encoder, batch: objective.predict(encoder, batch)[:, 0],
    )


TASKS: dict[str, Callable[[ExplainedModel, str, Any, Choice], Target]] = {
    "classify": _classify,
    "regress": _regress,
    "tag": _tag,
    "answer": _answer,
    "choose": _choose,
}


def _masked(model: ExplainedModel, reading: Reading, choice: Choice) -> Target:
    places = np.flatnonzero(reading.ids == model.tokenizer.mask)
    answer = {"kind": "token", "name": f"{choice.scale} at [MASK]", "scale": choice.scale, "places": places.tolist()}
    target = _tokens(model, reading, "masked_lm", places, answer, choice)
    return replace(target, keep=target.places)


def _next_token(model: ExplainedModel, text: str, pair: Any, choice: Choice) -> Target:
    if pair is not None:
        raise UserError("this model continues one text; leave out the pair")
    reading = without_end(read(model, text))
    places = np.array([len(reading.ids) - 1])
    answer = {"kind": "next token", "name": f"{choice.scale} of the next token", "scale": choice.scale}
    return _tokens(model, reading, "causal_lm", places, answer, choice)


def without_end(reading: Reading) -> Reading:
    """A text that goes on: without the [SEP] that ends it."""
    window = reading.window
    shorter = replace(window, ids=window.ids[:-1], segments=window.segments[:-1], special=window.special[:-1])
    return replace(reading, tokens=reading.tokens[:-1], window=shorter)


def _tokens(
    model: ExplainedModel, reading: Reading, name: str, places: np.ndarray, answer: dict[str, Any], choice: Choice
) -> Target:
    """The mean over the places of a token's score there."""
    objective, size = model.learner.objectives[name], model.tokenizer.size

    def targets(rows: int) -> dict[str, Any]:
        return {f"{name}.places": (np.arange(rows)[:, None] * len(reading.ids) + places).flatten()}

    def logits(encoder: CachedEncoder, batch: Batch) -> Tensor:
        return objective.predict(encoder, batch)[:, :size].unflatten(0, (-1, len(places)))  # (R, M, V)

    target = Target(model, reading, answer, _unscored, targets, tuple(places.tolist()))
    if choice.token is None:
        ids = logits(model.learner.encoder(), target.batch(target.ids))[0].argmax(-1)
    else:
        ids = torch.full((len(places),), _token_id(model, choice.token), device=model.device)
    shown = [model.tokenizer.shown(id).strip() for id in ids.tolist()]

    def score(encoder: CachedEncoder, batch: Batch) -> Tensor:
        found = logits(encoder, batch)
        return scaled(found, ids.expand(len(found), -1), choice.scale).mean(1)

    named = f"{answer['name']}: {', '.join(shown)}"
    return replace(target, answer=answer | {"name": named, "tokens": shown}, score=score)


def _token_id(model: ExplainedModel, token: str) -> int:
    """The token as it stands in the vocabulary, or as a text of one token."""
    if token in model.tokenizer.vocabulary:
        return model.tokenizer.vocabulary.index(token)
    pieces = model.tokenizer.encode([token])[0].tolist()
    if len(pieces) != 1 or pieces[0] == model.tokenizer.unk or pieces[0] >= model.tokenizer.size:
        shown = ", ".join(model.tokenizer.token(id) for id in pieces if id < model.tokenizer.size)
        raise UserError(f"'{token}' is not one token of this model ({shown}); a [MASK] is filled with one")
    return int(pieces[0])


def _vectors(model: ExplainedModel, encoder: CachedEncoder, batch: Batch) -> Tensor:
    """(R, W): one vector per row, as `keel embed` makes it."""
    vectors = encoder(batch).vectors
    pooling = model.sentence_encoder.pooling
    if pooling == "mean":
        return mean_of_rows(vectors, batch)
    if pooling == "cls":
        return encoder.backbone.row_vectors(vectors, batch)
    return torch.stack([row.max(0).values for row in vectors.split(batch.lengths)])


def _same_vector(model: ExplainedModel, text: str, pair: Any) -> Target:
    return _near(model, read(model, text, pair), None, {"kind": "vector", "name": "cosine to the text's own vector"})


def _similarity(model: ExplainedModel, text: str, pair: Any) -> Target:
    if pair is None:
        lacks = "the text has no [MASK]" if "masked_lm" in model.learner.objectives else "it predicts no tokens"
        raise UserError(
            f"{model.path}: this model was not fine-tuned and {lacks}, so there is no answer to explain; with a pair "
            "its similarity to the text is explained"
        )
    return _near(model, read(model, text), read(model, pair), {"kind": "similarity", "name": "cosine to the pair"})


def _near(model: ExplainedModel, reading: Reading, other: Reading | None, answer: dict[str, Any]) -> Target:
    target = Target(model, reading, answer | {"scale": "cosine"}, _unscored, lambda rows: {})
    against = replace(target, reading=other or reading)
    vector = _vectors(model, model.learner.encoder(), against.batch(against.ids))
    return replace(
        target,
        reading=reading if other is None else replace(reading, pair=other.text),
        score=lambda encoder, batch: F.cosine_similarity(_vectors(model, encoder, batch), vector),
    )
