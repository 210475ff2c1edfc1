"""Beam search: the likeliest text that a model can write, as far as a beam of candidates finds it.

In: a function that tells the chances of the next token for every candidate. Out: for each row the best finished text
and its score: log-probability / ((5 + tokens) / 6) ^ penalty (Wu et al. 2016), the end counted as a token.

Notable choices
- A text ends if its end is among the K likeliest ways to go on; the K likeliest others stay candidates.
- A row is done when K texts have ended, or when no candidate can still beat the best of them: chances only fall, so
  what a candidate has now, divided by the largest divisor there is, is the most it can reach. A wide enough beam thus
  gives the best text of all.
- Rows that are done are taken out, so that the last long text does not keep all others waiting.
- A beam of 1 is greedy search. What a row gets does not depend on the other rows.

Shapes: R rows, K candidates of a row, V tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# tokens (N,) that were just written; the candidate each of them continues (N,), None at the start; and the rows that
# are still there (R,), None if they are the same as before -> log-probabilities (N, V). N = rows x K.
Step = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


def divisor(tokens: int, penalty: float) -> float:
    return float(((5 + tokens) / 6) ** penalty)


def search(
    step: Step, limits: Sequence[int], begin: int, end: int, beam: int, penalty: float, device: torch.device
) -> list[tuple[list[int], float]]:
    """`limits`: how many tokens each row may have at the most, the end included."""
    best: list[tuple[list[int], float]] = [([], -torch.inf)] * len(limits)
    ended = [0] * len(limits)
    rows = list(range(len(limits)))
    written: list[list[list[int]]] = [[[] for _ in range(beam)] for _ in rows]
    sums = torch.full((len(rows), beam), -torch.inf, device=device)
    sums[:, 0] = 0  # all candidates are the same at first: one of them counts
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
        found = (sums[:, :, None] + chances).flatten(1).topk(min(2 * beam, beam * size))
        values, places = found.values.tolist(), found.indices.tolist()
        alive: list[list[tuple[float, int, int]]] = []  # of each row: sum, candidate, token
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
    """Up to K candidates: those that are missing are there without any chance."""
    return going + [(-torch.inf, going[0][1], going[0][2])] * (beam - len(going))
