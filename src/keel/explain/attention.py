"""Attention: how much each token attends to each other one, in every layer and head.

In: a model and a text or a pair. Out: `AttentionMaps`: the weights, their summary for each head, and their rollout
through the layers; for a translator also the cross-attention of its decoder.

    rollout = A_N ... A_2 A_1,  A = (mean over the heads + identity) / 2, rows of sum 1    (Abnar & Zuidema 2020)

Notable choices
- Layers and heads are counted from 1, as everywhere in Keel, where layer 0 is the embeddings: the weights of layer k
  are those with which its vectors are made from those of layer k - 1.
- From a word of several tokens the mean of their weights counts, to a word of several tokens the sum (Clark et al.
  2019).
- Weights show where a head looks, not what its output is used for: `heads` and `attribution` measure that (Jain &
  Wallace 2019; Wiegreffe & Pinter 2019).
- The weights of all heads are in memory at once; beyond MOST_WEIGHTS of them the text is refused.

Shapes: N layers, H heads, n tokens of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from keel.errors import UserError, suggest
from keel.explain.encoded import encode_array, thumbnails, to_base64
from keel.explain.mix import LayerShares, layer_shares
from keel.explain.reading import ExplainedModel, Reading, read
from keel.explain.translation import CrossAttention, cross_attention
from keel.learner.windows import to_rows
from keel.tasks.translate import Translate
from keel.values import Inspection, Window

MOST_WEIGHTS = 1 << 30  # 4 GB
MOST_LISTED = 1 << 20  # as lists of numbers in JSON, about 10 MB


@dataclass(frozen=True)
class HeadSummary:
    layer: int
    head: int
    entropy: float  # of a token's weights, in bits, mean over the tokens; 0: all looks go to one token
    special: float  # mean share of a token's weights on special tokens
    itself: float  # on the token itself
    links: list[tuple[int, int, float]]  # the strongest between two different ordinary tokens: from, to, weight


@dataclass(frozen=True)
class AttentionMaps:
    reading: Reading
    weights: np.ndarray  # (N, H, n, n) float32: row i is where token i looks
    cross: CrossAttention | None = None

    @property
    def tokens(self) -> Any:
        return self.reading.tokens

    def rollout(self) -> np.ndarray:
        """(n, n): how much of each token's vector in the last layer came from each token's embedding, if vectors were
        mixed as the weights say and half of each stayed where it was."""
        self._need_layers()
        identity = np.eye(self.weights.shape[2])
        mixed = identity
        for layer in self.weights.astype(np.float64).mean(1):
            step = layer + identity
            mixed = step / step.sum(1, keepdims=True) @ mixed
        return mixed.astype(np.float32)

    def map(self, layer: int | None = None, head: int | None = None) -> np.ndarray:
        """(n, n): of one layer and head; the mean over all of them where None."""
        layers, heads = self._chosen(_one(layer), _one(head))
        found: np.ndarray = self.weights[np.ix_(layers, heads)].mean((0, 1))
        return found

    def looks(self, start: str, to: str | None = None) -> np.ndarray:
        """(N, H, n): where a word looks, in every head; (N, H): how much it looks at the word `to`. A special token is
        found by its name, a word at its first place."""
        self._need_layers()
        found: np.ndarray = self.weights[:, :, self._tokens_of(start)].mean(2)
        return found if to is None else found[:, :, self._tokens_of(to)].sum(2)

    def _tokens_of(self, word: str) -> list[int]:
        names = {one.text: list(one.tokens) for one in reversed(self.reading.words)}
        special = ((n, token) for n, token in enumerate(self.reading.tokens) if token.special)
        names |= {token.token: [n] for n, token in reversed(list(special))}
        if word not in names:
            raise UserError(f"there is no word '{word}' in the text.{suggest(word, list(names))}")
        return names[word]

    def summaries(self, layer: int | None = None, head: int | None = None, links: int = 3) -> list[HeadSummary]:
        """One for each head."""
        layers, heads = self._chosen(_one(layer), _one(head))
        special = np.array([token.special for token in self.reading.tokens])
        places = np.flatnonzero(~special[:, None] & ~special & ~np.eye(len(special), dtype=bool))
        found = []
        for n in layers:
            for h in heads:
                w = self.weights[n, h]
                entropy = float(-(w * np.log2(np.maximum(w, 1e-30))).sum(1).mean())
                strongest = _largest(w, places, links)
                share = float(w[:, special].sum(1).mean())
                found.append(HeadSummary(n + 1, h + 1, entropy, share, float(np.diag(w).mean()), strongest))
        return found

    def as_json(
        self,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        encoding: str | None = None,
        thumbnails: int = 0,
        rollout: bool = False,
        start: str | None = None,
        to: str | None = None,
    ) -> dict[str, Any]:
        """`layers`, `heads`: the weights of these only, counted from 1. `encoding`: `lists`, `base64` (float32, little
        endian), or None: lists, unless there are more than a million weights. `thumbnails`: also images of all heads,
        this wide; with these the weights are left out unless layers or heads are named. `rollout`: also the rollout.
        `start`, `to`: the weights from (and to) a word instead of all, as `looks` has them."""
        rows, columns = self._chosen(layers, heads)
        found = self.reading.as_json("attention")
        if encoding is None:
            encoding = "base64" if len(rows) * len(columns) * len(self.reading.ids) ** 2 > MOST_LISTED else "lists"
        found |= {"layers": [n + 1 for n in rows], "heads": [h + 1 for h in columns], "encoding": encoding}
        weights = self.weights if start is None else self.looks(start, to)
        found |= {} if start is None else {"from": start, "to": to}
        chosen = weights[np.ix_(rows, columns)]
        with_weights = not thumbnails or layers is not None or heads is not None
        found |= {"shape": list(chosen.shape), "weights": encode_array(chosen, encoding) if with_weights else None}
        if thumbnails:
            found["thumbnails"] = _thumbnails(self.weights, thumbnails)
        if rollout:
            found["rollout"] = encode_array(self.rollout(), encoding)
        if self.cross is not None:
            found["cross"] = {
                "translation": self.cross.translation,
                "written": self.cross.written,
                "shape": list(self.cross.weights.shape),
                "weights": encode_array(self.cross.weights, encoding),
            }
        return found

    def _chosen(self, layers: Sequence[int] | None, heads: Sequence[int] | None) -> tuple[list[int], list[int]]:
        """Indices from 0."""
        if layers is not None or heads is not None:
            self._need_layers()
        found = []
        for name, given, count in zip(("layer", "head"), (layers, heads), self.weights.shape[:2], strict=True):
            wrong = [number for number in given or () if not 1 <= number <= count]
            if wrong:
                raise UserError(f"{name} {wrong[0]}: this model has {name}s 1 to {count}")
            found.append([number - 1 for number in given] if given is not None else list(range(count)))
        return found[0], found[1]

    def _need_layers(self) -> None:
        if not len(self.weights):
            raise UserError("the encoder of this model has no attention, only its decoder")


def _largest(weights: np.ndarray, places: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """Row, column and number of the largest of these places; of equal ones the first. Sorts only these: a long text has
    hundreds of thousands of places in each head."""
    values = weights.ravel()[places]
    if 0 < count < len(values):
        kept = values >= np.partition(values, -count)[-count]
        places, values = places[kept], values[kept]
    order = np.argsort(-values, kind="stable")[:count]
    return [(*divmod(int(places[n]), weights.shape[1]), float(values[n])) for n in order]


def _one(number: int | None) -> list[int] | None:
    return None if number is None else [number]


def _thumbnails(weights: np.ndarray, size: int) -> dict[str, Any]:
    small = thumbnails(weights, size)
    return {"shape": list(small.shape), "encoding": "base64", "dtype": "uint8", "data": to_base64(small)}


def attention(model: ExplainedModel, text: str, pair: str | None = None) -> AttentionMaps | LayerShares:
    """The attention weights of every layer and head. A model without attention has the shares of its layers instead."""
    reading = read(model, text, pair)
    weights = collect_weights(model, reading)
    cross = _cross(model, text, pair)
    if weights is None and cross is None:
        return layer_shares(model, reading)
    nothing = np.zeros((0, 0, len(reading.ids), len(reading.ids)), np.float32)
    return AttentionMaps(reading, nothing if weights is None else weights, cross)


def _cross(model: ExplainedModel, text: str, pair: str | None) -> CrossAttention | None:
    """Of a translator whose decoder attends to the source."""
    if not isinstance(model.task, Translate) or model.task.config.decoder == "rnn":
        return None
    if pair is not None:
        raise UserError("this model translates one text; leave out the pair")
    return cross_attention(model, text)


def attention_shape(model: ExplainedModel, reading: Reading) -> tuple[int, int]:
    """Layers, and heads of each."""
    window = reading.window
    first = replace(window, ids=window.ids[:1], segments=window.segments[:1], special=window.special[:1])
    weights = collect_weights(model, replace(reading, window=first))
    if weights is None:
        raise UserError(f"{model.path}: a model of kind {reading.model_kind} has no attention heads")
    return weights.shape[0], weights.shape[1]


@torch.no_grad()
def collect_weights(model: ExplainedModel, reading: Reading) -> np.ndarray | None:
    """(N, H, n, n); None: the encoder has no attention."""
    config, length = model.learner.backbone.config.model_dump(), len(reading.ids)
    size = config["layers"] * config.get("heads", 0) * length**2
    if size > MOST_WEIGHTS:
        raise UserError(
            f"the attention of {length:,} tokens in {config['layers']} layers of {config['heads']} heads is "
            f"{4 * size / 2**30:.0f} GB; shorten the text"
        )
    found: dict[int, list[torch.Tensor]] = {}
    window = Window(reading.window.ids, reading.window.segments, reading.window.special, 0)
    batch = model.learner.batch(to_rows([window]), model.tokenizer, device=model.device)
    model.learner.backbone(replace(batch, inspection=Inspection(weights=found)))
    if not found:
        return None
    return torch.stack([found[layer][0][0] for layer in sorted(found)]).float().cpu().numpy()
