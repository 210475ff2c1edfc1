"""A recurrent decoder, from one fixed vector (Cho et al. 2014), or with attention (Bahdanau et al. 2015).

In: the embedded target tokens, flat, and the encoder's vectors. Out: one vector per target token, from which the next
one is predicted.

    s_0 = tanh(A h), where h is the source's sentence vector
    s_t = GRU(s_{t-1}, [y_{t-1}; c_t])
    c_t = h, or with attention the sum of a_j h_j, a = softmax over j of v tanh(U h_j + B s_{t-1})
    out = tanh(C [s_t; y_{t-1}; c_t])

Notable choices
- Without attention c_t does not depend on s_{t-1}, so all inputs are known in advance; with it, one step must finish
  before the next begins: the dependency that the Transformer removed.
- Rows are not computed beyond their end.

Shapes: R rows, S longest source, W width, E width of the source vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from keel.layers.dropout import Dropout
from keel.layers.padded_rows import PaddedRows
from keel.layers.recurrent.rows import Reading, in_fp32
from keel.layers.recurrent.rows import read as step_through


@dataclass(frozen=True)
class Read:
    """The encoded source: one vector per row; with attention also each token's vector and key (U h_j)."""

    whole: Tensor  # (R, E)
    tokens: Tensor | None = None  # (R, S, E)
    keys: Tensor | None = None  # (R, S, W)
    inside: Tensor | None = None  # (R, S) bool

    def first(self, rows: int) -> Read:
        return self.pick(slice(0, rows))

    def pick(self, rows: Tensor | slice) -> Read:
        tokens, keys, inside = (None if x is None else x[rows] for x in (self.tokens, self.keys, self.inside))
        return Read(self.whole[rows], tokens, keys, inside)


class RnnDecoder(nn.Module):
    def __init__(self, width: int, source_width: int, attention: bool, dropout: float) -> None:
        super().__init__()
        self.begin = nn.Linear(source_width, width)
        self.network = nn.GRU(width + source_width, width)
        self.out = nn.Linear(2 * width + source_width, width)
        self.dropout = Dropout(dropout)
        if attention:
            self.ask: nn.Linear | None = nn.Linear(width, width)
            self.key = nn.Linear(source_width, width, bias=False)
            self.score = nn.Linear(width, 1, bias=False)
        else:
            self.ask = None
        self._state: Tensor | None = None
        self._remembers = False

    def read(self, vectors: Tensor, lengths: tuple[int, ...], whole: Tensor) -> Read:
        if self.ask is None:
            return Read(whole)
        padding = PaddedRows.of(lengths, vectors.device)
        tokens = padding.pad(vectors)
        return Read(whole, tokens, self.key(tokens), padding.inside)

    def forward(self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], read: Read) -> Tensor:
        reading = Reading.of(lengths, embedded.device)
        inputs = self.dropout(embedded)
        state = self._first(read) if self._state is None else self._state
        if self.ask is None:
            rows = torch.tensor(lengths, device=embedded.device)
            contexts = read.whole.repeat_interleave(rows, 0, output_size=len(embedded))
            states = step_through(self.network, torch.cat([inputs, contexts], 1), reading, state)
        else:
            states, contexts = self._step_by_step(inputs, reading, state, read)
        if self._remembers:
            self._state = states  # each row has exactly one new token here
        return torch.tanh(self.out(self.dropout(torch.cat([states, embedded, contexts], 1))))

    def _first(self, read: Read) -> Tensor:
        return torch.tanh(self.begin(read.whole))

    def _step_by_step(self, inputs: Tensor, reading: Reading, state: Tensor, read: Read) -> tuple[Tensor, Tensor]:
        """States and contexts. The longest rows come first, so the rows that continue are a prefix."""
        states, contexts = [], []
        for words in inputs[reading.order].split(reading.together.tolist()):
            if len(words) < len(state):
                state, read = state[: len(words)], read.first(len(words))
            context = self._look(state, read)
            with in_fp32(state.device):
                state = self.network(torch.cat([words, context], 1).float()[None], state.float()[None])[1][0]
            states.append(state)
            contexts.append(context)
        return reading.back(torch.cat(states)), reading.back(torch.cat(contexts))

    def weights(self, state: Tensor, read: Read) -> Tensor:
        """(R, S): attention weights over the source tokens."""
        assert self.ask is not None and read.inside is not None
        scores = self.score(torch.tanh(read.keys + self.ask(state)[:, None])).squeeze(2)
        return scores.masked_fill(~read.inside, -torch.inf).softmax(1)

    @torch.no_grad()
    def attention_weights(
        self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], read: Read
    ) -> list[Tensor]:
        """One (R, 1, longest, S) tensor: one layer with one head."""
        inputs = PaddedRows.of(lengths, embedded.device).pad(embedded)
        state, weights = self._first(read), []
        for word in inputs.unbind(1):
            weights.append(self.weights(state, read))
            state = self.network(torch.cat([word, self._look(state, read)], 1)[None], state[None])[1][0]
        return [torch.stack(weights, 1)[:, None]]

    def _look(self, state: Tensor, read: Read) -> Tensor:
        """(R, E): the context vector c_t."""
        assert read.tokens is not None
        return torch.einsum("rs,rse->re", self.weights(state, read), read.tokens)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Inside this context, each call gets the next token of every row."""
        self._state, self._remembers = None, True
        try:
            yield
        finally:
            self._state, self._remembers = None, False

    def pick(self, rows: Tensor) -> None:
        """Keeps these rows of the state; an index may be repeated."""
        assert self._state is not None
        self._state = self._state[rows]
