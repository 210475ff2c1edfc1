"""A recurrent decoder, from one fixed vector (Cho et al. 2014), or with attention (Bahdanau et al. 2015).

In: the embedded tokens of the texts being written, flat, and the encoder's vectors. Out: one vector per token, from
which the next one is guessed.

    s_0 = tanh(A h), with h the vector that stands for the text read
    s_t = GRU(s_{t-1}, [y_{t-1}; c_t])
    c_t = h, or with attention the sum of a_j h_j, a = softmax over j of v tanh(U h_j + B s_{t-1})
    out = tanh(C [s_t; y_{t-1}; c_t])

Notable choice: without attention nothing in c_t waits for s_{t-1}, so torch runs over whole texts at once; with it, one
step must end before the next begins. That is what attention alone did away with.

Shapes: Q tokens written, R rows, S longest text read, W width, E width of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from keel.layers.cross_attention import Padding
from keel.layers.dropout import Dropout


@dataclass(frozen=True)
class Read:
    """Of the texts read: one vector each, and with attention every token's, with U already applied."""

    whole: Tensor  # (R, E)
    tokens: Tensor | None = None  # (R, S, E)
    keys: Tensor | None = None  # (R, S, W)
    inside: Tensor | None = None  # (R, S) bool

    def pick(self, rows: Tensor) -> Read:
        parts = (self.whole, self.tokens, self.keys, self.inside)
        return Read(*(None if part is None else part[rows] for part in parts))  # type: ignore[arg-type]


class RnnDecoder(nn.Module):
    def __init__(self, width: int, source_width: int, attention: bool, share: float) -> None:
        super().__init__()
        self.begin = nn.Linear(source_width, width)
        self.network = nn.GRU(width + source_width, width)
        self.out = nn.Linear(2 * width + source_width, width)
        self.dropout = Dropout(share)
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
        padding = Padding.of(lengths, vectors.device)
        tokens = padding.fill(vectors)
        return Read(whole, tokens, self.key(tokens), padding.inside)

    def forward(self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], read: Read) -> Tensor:
        padding = Padding.of(lengths, embedded.device)
        inputs = padding.fill(self.dropout(embedded))  # (R, L, W)
        state = torch.tanh(self.begin(read.whole)) if self._state is None else self._state
        if self.ask is None:
            contexts = read.whole[:, None].expand(-1, inputs.shape[1], -1)
            states, end = self.network(torch.cat([inputs, contexts], 2).transpose(0, 1), state[None])
            states, state = states.transpose(0, 1), end[0]
        else:
            found, seen = [], []
            for word in inputs.unbind(1):
                context = self._look(state, read)
                state = self.network(torch.cat([word, context], 1)[None], state[None])[1][0]
                found.append(state)
                seen.append(context)
            states, contexts = torch.stack(found, 1), torch.stack(seen, 1)
        if self._remembers:
            self._state = state  # rows are of equal length then: one new token each
        together = torch.cat([padding.flat(part) for part in (states, inputs, contexts)], 1)
        return torch.tanh(self.out(self.dropout(together)))

    def weights(self, state: Tensor, read: Read) -> Tensor:
        """(R, S): how much a state looks at each token read."""
        assert self.ask is not None and read.inside is not None
        scores = self.score(torch.tanh(read.keys + self.ask(state)[:, None])).squeeze(2)
        return scores.masked_fill(~read.inside, -torch.inf).softmax(1)

    @torch.no_grad()
    def look(self, embedded: Tensor, positions: Tensor, lengths: tuple[int, ...], read: Read) -> list[Tensor]:
        """(R, 1, longest, S): its one layer, its one head."""
        inputs, state, found = (
            Padding.of(lengths, embedded.device).fill(embedded),
            torch.tanh(self.begin(read.whole)),
            [],
        )
        for word in inputs.unbind(1):
            found.append(self.weights(state, read))
            state = self.network(torch.cat([word, self._look(state, read)], 1)[None], state[None])[1][0]
        return [torch.stack(found, 1)[:, None]]

    def _look(self, state: Tensor, read: Read) -> Tensor:
        assert read.tokens is not None
        return torch.einsum("rs,rse->re", self.weights(state, read), read.tokens)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within this, each call gives the next token of every row."""
        self._state, self._remembers = None, True
        try:
            yield
        finally:
            self._state, self._remembers = None, False

    def pick(self, rows: Tensor) -> None:
        """Goes on from these rows of what was written."""
        assert self._state is not None
        self._state = self._state[rows]
