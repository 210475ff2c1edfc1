"""What each layer would already answer: the head of the model reads the vectors of every layer (the "logit lens",
nostalgebraist 2020).

In: a model with a head that ranks answers (masked_lm, causal_lm, classify), a text or a pair. Out: `LayerAnswers`: for
each [MASK] (or the label, or the next token) the ranked guesses of each layer, and from which layer on the final answer
is at the top.

Notable choices
- Layer 0 is the embeddings. The last layer's guesses are those of `keel fill` and `keel predict`, from the same code.
- In a pre-norm model the final norm is applied to every layer, because the head has only ever read normed vectors
  (`Inspection.normed`).
- The head was trained for the last layer only: a low rank further down does not prove that the answer is not there.
  A classifier for each layer (`keel probe`) asks the other question.

Shapes: N layers, M masks, C classes or tokens, T tokens, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from keel.errors import UserError
from keel.explain.reading import ExplainedModel, Reading
from keel.explain.targets import Choice, Target, find_target
from keel.interfaces import Backbone, CachedEncoder
from keel.tasks.classify import Classify
from keel.values import Batch, Encoding, Inspection

WANTED = "a masked language model and a text with [MASK], a causal language model, or a classifier"
HEADS = {"label": "classify", "token": "masked_lm", "next token": "causal_lm"}


@dataclass(frozen=True)
class Guess:
    text: str
    id: int
    probability: float


@dataclass(frozen=True)
class PlaceAnswers:
    """The guesses for one [MASK], for the label, or for the next token."""

    token: int | None  # which token is asked about; None: the whole text
    final: str  # the answer of the last layer
    from_layer: int  # from this layer on, it is every layer's first guess
    guesses: list[list[Guess]]  # of each layer, the embeddings first
    final_probability: list[float]  # of the last layer's answer, in each layer


@dataclass(frozen=True)
class LayerAnswers:
    reading: Reading
    kind: str  # label | token | next token
    places: list[PlaceAnswers]

    def as_json(self) -> dict[str, Any]:
        return self.reading.as_json("layers") | {"kind": self.kind, "places": [_place(one) for one in self.places]}


def _place(one: PlaceAnswers) -> dict[str, Any]:
    layers = [
        {"layer": number, "final_probability": chance, "guesses": [vars(guess) for guess in guesses]}
        for number, (guesses, chance) in enumerate(zip(one.guesses, one.final_probability, strict=True))
    ]
    return {"token": one.token, "final": one.final, "from_layer": one.from_layer, "layers": layers}


class LayerEncoder(CachedEncoder):
    """An encoder whose output is one layer's vectors."""

    def __init__(self, backbone: Backbone, vectors: Tensor) -> None:
        super().__init__(backbone)
        self.vectors = vectors

    def fresh(self, batch: Batch, all_layers: bool = False) -> Encoding:
        return Encoding(self.vectors)


@torch.no_grad()
def layers(model: ExplainedModel, text: str, pair: Any = None, *, top: int = 5) -> LayerAnswers:
    """`top`: guesses of each layer."""
    if top < 1:
        raise UserError(f"{top} guesses of each layer: give 1 or more")
    _need_plain_layers(model)
    if model.task is None and not {"masked_lm", "causal_lm"} & set(model.learner.objectives):
        raise UserError(f"{model.path}: this model has no head that could read its layers; that takes {WANTED}")
    target = find_target(model, text, pair, Choice(), ("logit", "logit"))
    kind = target.answer["kind"]
    if kind not in HEADS:
        raise UserError(f"{model.path}: its layers cannot be read one by one; that takes {WANTED}")
    objective, batch = model.learner.objectives[HEADS[kind]], target.batch(target.ids, Inspection(normed=True))
    backbone = model.learner.backbone
    found = backbone(batch, all_layers=True).layers
    reader = model.learner.encoder().backbone
    logits = torch.stack([objective.predict(LayerEncoder(reader, vectors), batch) for vectors in found])
    names, chances = _chances(target, logits.float())
    places = list(target.places) if kind != "label" else [None]
    ranked = [_rank(place, chances[:, n], names, top) for n, place in enumerate(places)]
    return LayerAnswers(target.reading, kind, ranked)


def _chances(target: Target, logits: Tensor) -> tuple[Any, Tensor]:
    """The name of each class, and (N + 1, M, C) probabilities."""
    task, tokenizer = target.model.task, target.model.tokenizer
    if isinstance(task, Classify):
        labels = task.config.labels or []
        return labels.__getitem__, logits.sigmoid() if task.config.multi_label else logits.softmax(2)
    return lambda id: tokenizer.shown(id).strip(), logits[:, :, : tokenizer.size].softmax(2)


def _rank(place: int | None, chances: Tensor, names: Any, top: int) -> PlaceAnswers:
    """`chances`: (N + 1, C)"""
    best = chances.topk(min(top, chances.shape[1]), 1)
    guesses = [
        [Guess(names(id), id, chance) for id, chance in zip(ids, values, strict=True)]
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    final = guesses[-1][0]
    others = [number for number, row in enumerate(guesses) if row[0].id != final.id]
    return PlaceAnswers(place, final.text, max(others, default=-1) + 1, guesses, chances[:, final.id].tolist())


def _need_plain_layers(model: ExplainedModel) -> None:
    frozen = model.learner.frozen
    if frozen is None:
        return
    if frozen.settings.layers != "last" or frozen.bilstm is not None:
        read = "a BiLSTM" if frozen.bilstm is not None else f"several layers at once ({frozen.settings.layers})"
        raise UserError(f"{model.path}: its head reads {read}, so it cannot read one layer alone")
