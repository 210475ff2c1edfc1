"""What `keel explain` computes, written out with transformers, hooks and plain torch: nothing here is Keel's.

In: a model of `transformers`, ids and segments of one row, and a score: its output -> one number. Out: that number with
one head switched off, its integrated gradients, and a head's answer to the vectors of any layer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Score = Callable[[Any], Tensor]  # the model's output for one row -> one number


class Row:
    """One row that a model of transformers reads."""

    def __init__(self, model: Any, ids: np.ndarray, segments: np.ndarray | None) -> None:
        self.model = model
        numbers = torch.from_numpy(np.asarray(ids, np.int64))[None]
        self.inputs: dict[str, Any] = {"input_ids": numbers, "attention_mask": torch.ones_like(numbers)}
        if segments is not None:
            self.inputs["token_type_ids"] = torch.from_numpy(np.asarray(segments, np.int64))[None]

    def inputs_for(self, ids: np.ndarray | None = None) -> dict[str, Any]:
        """With other ids in place of the row's own."""
        return self.inputs | ({} if ids is None else {"input_ids": torch.from_numpy(np.asarray(ids, np.int64))[None]})

    def output(self, ids: np.ndarray | None = None, **options: Any) -> Any:
        return self.model(**self.inputs_for(ids), **options)


@torch.no_grad()
def without_heads(row: Row, projections: Sequence[torch.nn.Module], heads: int, score: Score) -> np.ndarray:
    """(N, H): the score when one head's output is zero before the output projection."""
    layers = row.model.config.num_hidden_layers
    found = np.zeros((layers, heads))
    for layer in range(layers):
        for head in range(heads):
            with head_off(projections, layer, head, heads):
                found[layer, head] = float(score(row.output()))
    return found


@contextlib.contextmanager
def head_off(projections: Sequence[torch.nn.Module], layer: int, head: int, heads: int) -> Iterator[None]:
    """ALBERT has one projection, which is called once for each layer."""
    calls = iter(range(1000))

    def zero(module: torch.nn.Module, given: tuple[Tensor]) -> tuple[Tensor] | None:
        if len(projections) == 1 and next(calls) != layer:
            return None
        mixed = given[0].clone()
        size = mixed.shape[-1] // heads
        mixed[..., head * size : (head + 1) * size] = 0
        return (mixed,)

    projection = projections[0] if len(projections) == 1 else projections[layer]
    handle = projection.register_forward_pre_hook(zero)
    yield
    handle.remove()


@contextlib.contextmanager
def embedded(model: Any, vectors: Tensor) -> Iterator[None]:
    """The model reads these vectors (n, E) instead of the embeddings of its ids."""
    handle = model.get_input_embeddings().register_forward_hook(lambda *_: vectors[None])
    yield
    handle.remove()


def integrated_gradients(
    row: Row, score: Score, baseline: int | None, moving: np.ndarray, steps: int = 8, nodes: Any = None
) -> tuple[np.ndarray, float, float]:
    """(n,) by Gauss-Legendre nodes, or by those given on [-1, 1]; the score of the baseline, and of the text.
    `baseline` None: the zero vector."""
    table = row.model.get_input_embeddings().weight.detach()
    end = table[row.inputs["input_ids"][0]]
    vector = torch.zeros_like(end[0]) if baseline is None else table[baseline]
    start = torch.where(torch.from_numpy(moving)[:, None], vector, end)

    def at(point: Tensor) -> Tensor:
        with embedded(row.model, point):
            return score(row.output())

    total = torch.zeros_like(end)
    for node, weight in zip(*(nodes or np.polynomial.legendre.leggauss(steps)), strict=True):
        point = (start + (node + 1) / 2 * (end - start)).requires_grad_()
        (slope,) = torch.autograd.grad(at(point), point)
        total += weight / 2 * slope
    with torch.no_grad():
        return ((end - start) * total).sum(1).numpy(), float(at(start)), float(at(end))


def slopes_by_differences(
    row: Row, score: Score, baseline: int, moving: np.ndarray, steps: int, size: float = 1e-4
) -> np.ndarray:
    """(n,): the same integral with finite differences for gradients: each token alone is moved a little towards its
    embedding, on both sides of each node. The model must be in double precision."""
    table = row.model.get_input_embeddings().weight.detach()
    end = table[row.inputs["input_ids"][0]]
    start = torch.where(torch.from_numpy(moving)[:, None], table[baseline], end)
    found = np.zeros(len(end))
    with torch.no_grad():
        for node, weight in zip(*np.polynomial.legendre.leggauss(steps), strict=True):
            point = start + (node + 1) / 2 * (end - start)
            for token in np.flatnonzero(moving):
                step = torch.zeros_like(point)
                step[token] = size * (end - start)[token]
                values = []
                for moved in (point + step, point - step):
                    with embedded(row.model, moved):
                        values.append(float(score(row.output())))
                found[token] += weight / 2 * (values[0] - values[1]) / (2 * size)
    return found


@torch.no_grad()
def answers_of_layers(row: Row, normed: torch.nn.Module | None) -> list[Any]:
    """The output of the model's own head for the vectors of each layer, embeddings first. `normed`: the final norm of a
    pre-norm model, which its last layer's vectors have already."""
    states = list(row.output(output_hidden_states=True).hidden_states)
    if normed is not None:
        states[:-1] = map(normed, states[:-1])
    base, found = row.model.base_model, []
    for vectors in states:

        def replaced(module: Any, given: Any, output: Any, vectors: Tensor = vectors) -> Any:
            output["last_hidden_state"] = vectors
            if output.get("pooler_output") is not None:
                pooler, activation = module.pooler, getattr(module, "pooler_activation", None)
                output["pooler_output"] = activation(pooler(vectors[:, 0])) if activation else pooler(vectors)
            return output

        handle = base.register_forward_hook(replaced)
        found.append(row.output())
        handle.remove()
    return found
