"""Beam search: an approximation of the most likely output of a decoder.

In: a function that gives the next token's log-probabilities for every hypothesis. Out: for each row the best finished
hypothesis and its score: log-probability / ((5 + tokens) / 6) ^ penalty (Wu et al. 2016), where the end token counts.

Notable choices
- A hypothesis is finished if its end token is among the K most likely continuations; the K most likely others go on.
- A row is done when K hypotheses are finished, or when no open one can beat the best of them: log-probabilities only
  fall, so the current sum divided by the largest possible divisor is an upper bound. A wide enough beam therefore
  finds the optimum.
- Finished rows are removed from the batch, so that the remaining steps do not compute them.
- A beam of 1 is greedy search. A row's result does not depend on the other rows.

Shapes: R rows, K hypotheses of a row, V tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# The latest tokens (N,); the hypothesis each of them extends (N,), None at the start; and the remaining rows (R,), None
# if they are the same as before -> log-probabilities (N, V). N = rows x K.
Step = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


def divisor(tokens: int, penalty: float) -> float:
    return float(((5 + tokens) / 6) ** penalty)


def search(
    step: Step, limits: Sequence[int], begin: int, end: int, beam: int, penalty: float, device: torch.device
) -> list[tuple[list[int], float]]:
    """`limits`: the maximum number of tokens of each row, including the end token."""
    best: list[tuple[list[int], float]] = [([], -torch.inf)] * len(limits)
    ended = [0] * len(limits)
    rows = list(range(len(limits)))
    written: list[list[list[int]]] = [[[] for _ in range(beam)] for _ in rows]
    sums = torch.full((len(rows), beam), -torch.inf, device=device)
    sums[:, 0] = 0  # all hypotheses start identical: only one counts
    tokens = torch.full((len(rows) * beam,), begin, device=device)
    origin: Tensor | None = None
    kept: Tensor | None = None
    length = 0
    while rows:
        length += 1
        chances = step(tokens, origin, kept).unflatten(0, (len(rows), beam))
        size = chances.shape[2]
        last = torch.tensor([limits[row] == length for row in rows], device=device)
        others = torch.ones(size, dtype=torch.bool, device=device)
        others[end] = False
        chances = chances.masked_fill(last[:, None, None] & others, -torch.inf)
        likeliest = (sums[:, :, None] + chances).flatten(1).topk(min(2 * beam, beam * size))
        values, places = likeliest.values.tolist(), likeliest.indices.tolist()
        alive: list[list[tuple[float, int, int]]] = []  # of each row: sum, hypothesis extended, token
        for number, row in enumerate(rows):
            going = []
            for rank, (value, place) in enumerate(zip(values[number], places[number], strict=True)):
                candidate, token = divmod(place, size)
                if value == -torch.inf:
                    continue
                if token != end:
                    going.append((value, candidate, token))
                elif rank < beam:
                    ended[row] += 1
                    score = value / divisor(length, penalty)
                    if score > best[row][1]:
                        best[row] = (written[number][candidate], score)
            going = going[:beam]
            most = going[0][0] / divisor(limits[row], penalty) if going else -torch.inf
            alive.append(going if ended[row] < beam and most > best[row][1] else [])
        stay = [number for number, going in enumerate(alive) if going]
        full = [(number, _fill(alive[number], beam)) for number in stay]
        written = [[[*written[number][c], t] if v > -torch.inf else [] for v, c, t in going] for number, going in full]
        sums = torch.tensor([[value for value, _, _ in going] for _, going in full], device=device)
        tokens = torch.tensor([token for _, going in full for _, _, token in going], dtype=torch.long, device=device)
        origin = torch.tensor(
            [number * beam + c for number, going in full for _, c, _ in going], dtype=torch.long, device=device
        )
        kept = None if len(stay) == len(rows) else torch.tensor(stay, dtype=torch.long, device=device)
        rows = [rows[number] for number in stay]
    return best


def _fill(going: list[tuple[float, int, int]], beam: int) -> list[tuple[float, int, int]]:
    """Fills up to K hypotheses with some of probability zero."""
    return going + [(-torch.inf, going[0][1], going[0][2])] * (beam - len(going))
