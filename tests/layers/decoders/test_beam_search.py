"""Beam search against all possible texts; greedy search; and that rows do not depend on each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.layers.decoders.beam_search import Step, divisor, search

BEGIN, END = 0, 1
CPU = torch.device("cpu")


class Model:
    """A random language model: the next token's log-probabilities are a function of all tokens before it."""

    def __init__(self, seed: int, size: int) -> None:
        self.seed, self.size = seed, size

    def log_probabilities(self, written: Sequence[int]) -> Tensor:
        number = self.seed
        for token in written:
            number = (number * 31 + token + 7) % 1_000_003
        return torch.randn(self.size, generator=torch.Generator().manual_seed(number)).mul(2).log_softmax(0)


def step_for(models: Sequence[Model], beam: int) -> Step:
    """What a decoder does for beam search: it keeps what each candidate has written."""
    rows = list(models)
    texts: list[list[int]] = [[] for _ in range(len(rows) * beam)]

    def step(tokens: Tensor, origin: Tensor | None, kept: Tensor | None) -> Tensor:
        nonlocal rows, texts
        rows = rows if kept is None else [rows[i] for i in kept.tolist()]
        texts = texts if origin is None else [texts[i] for i in origin.tolist()]
        texts = [[*text, token] for text, token in zip(texts, tokens.tolist(), strict=True)]
        return torch.stack([rows[i // beam].log_probabilities(text) for i, text in enumerate(texts)])

    return step


def brute_force(model: Model, limit: int, penalty: float) -> tuple[list[int], float]:
    best: tuple[list[int], float] = ([], -math.inf)
    others = [token for token in range(model.size) if token != END]
    for length in range(limit):
        for text in itertools.product(others, repeat=length):
            written, total = [BEGIN], 0.0
            for token in (*text, END):
                total += float(model.log_probabilities(written)[token])
                written.append(token)
            if total / divisor(length + 1, penalty) > best[1]:
                best = (list(text), total / divisor(length + 1, penalty))
    return best


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 4), st.sampled_from([0.0, 0.6, 1.0, 2.0]))
def test_a_wide_beam_finds_the_best_text(seed: int, size: int, limit: int, penalty: float) -> None:
    model, beam = Model(seed, size), size**limit
    ((text, score),) = search(step_for([model], beam), [limit], BEGIN, END, beam, penalty, CPU)
    right, best = brute_force(model, limit, penalty)
    assert math.isclose(score, best, rel_tol=1e-5) and text == right


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 8), st.integers(1, 12))
def test_a_beam_of_one_is_greedy_search(seed: int, size: int, limit: int) -> None:
    model, written = Model(seed, size), [BEGIN]
    while len(written) < limit and int(model.log_probabilities(written).argmax()) != END:
        written.append(int(model.log_probabilities(written).argmax()))
    ((text, _),) = search(step_for([model], 1), [limit], BEGIN, END, 1, 0.0, CPU)
    assert len(text) < limit
    if len(written) < limit:
        assert text == written[1:]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 9)), min_size=1, max_size=6), st.integers(1, 5))
def test_rows_searched_together_equal_each_row_alone(rows: list[tuple[int, int]], beam: int) -> None:
    models, limits = [Model(seed, 6) for seed, _ in rows], [limit for _, limit in rows]
    together = search(step_for(models, beam), limits, BEGIN, END, beam, 0.6, CPU)
    for model, limit, (text, score) in zip(models, limits, together, strict=True):
        ((alone, same),) = search(step_for([model], beam), [limit], BEGIN, END, beam, 0.6, CPU)
        assert alone == text and math.isclose(score, same, rel_tol=1e-6)
        assert len(text) < limit, "the end counts as a token"
