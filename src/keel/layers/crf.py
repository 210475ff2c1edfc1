"""A linear-chain conditional random field (Lafferty et al. 2001): scores sequences of labels.

In: (P, C) logits of the words of all rows end to end, and an (R, M) table of word indices, -1 after a row's last word.
Out: the summed negative log-likelihood of the correct sequences; or the best sequence, with the marginal probability of
each of its labels. The table's shape gives the number of steps, so nothing synchronises with the device.

score(y) = begin[y_1] + sum_t logits[t, y_t] + sum_t step[y_t, y_t+1] + end[y_n]

Shapes: P words, R rows, M words in the longest row, C labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NEVER = -1e4  # finite, so that padding gives no NaN in a gradient


class CRF(nn.Module):
    def __init__(self, labels: int) -> None:
        super().__init__()
        self.begin = nn.Parameter(torch.zeros(labels))
        self.step = nn.Parameter(torch.zeros(labels, labels))
        self.end = nn.Parameter(torch.zeros(labels))

    def loss(self, logits: Tensor, answers: Tensor, table: Tensor) -> Tensor:
        padded, real = _padded(logits, table)
        gold = answers[table.clamp_min(0)]
        return (self._forward(padded, real)[1] - self._score(padded, gold, real)).sum()

    def decode(self, logits: Tensor, table: Tensor) -> Tensor:
        """(P, 2): the labels of each row's best sequence, and their marginal probabilities."""
        padded, real = _padded(logits, table)
        best = self._best(padded, real)
        probability = self._marginals(padded, real).gather(2, best[..., None]).squeeze(2)
        decoded = torch.stack([best.to(probability.dtype), probability], -1).view(-1, 2)
        place = torch.where(real, table, len(logits)).view(-1)  # padding goes to one extra entry at the end
        return decoded.new_zeros(len(logits) + 1, 2).index_copy(0, place, decoded)[:-1]

    def _score(self, logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """(R,): the score of the given sequences."""
        emissions = logits.gather(2, labels[..., None]).squeeze(2) * real
        transitions = self.step[labels[:, :-1], labels[:, 1:]] * real[:, 1:]
        last = labels.gather(1, _last(real)[:, None]).squeeze(1)
        some = real.any(1)
        return emissions.sum(1) + transitions.sum(1) + (self.begin[labels[:, 0]] + self.end[last]) * some

    def _forward(self, logits: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """(R, M, C) log-sum of the scores of all prefixes that end in each label, and (R,) of all sequences."""
        alpha = self.begin + logits[:, 0]
        alphas = [alpha]
        for t in range(1, logits.shape[1]):
            grown = torch.logsumexp(alpha[:, :, None] + self.step, 1) + logits[:, t]
            alpha = torch.where(real[:, t, None], grown, alpha)
            alphas.append(alpha)
        total = torch.logsumexp(alpha + self.end, 1)
        return torch.stack(alphas, 1), torch.where(real.any(1), total, torch.zeros_like(total))

    def _marginals(self, logits: Tensor, real: Tensor) -> Tensor:
        alphas, total = self._forward(logits, real)
        beta = self.end.expand(logits.shape[0], -1)
        betas = [beta]
        for t in range(logits.shape[1] - 1, 0, -1):
            grown = torch.logsumexp(self.step + (logits[:, t] + beta)[:, None, :], 2)
            beta = torch.where(real[:, t, None], grown, beta)
            betas.append(beta)
        return torch.exp(alphas + torch.stack(betas[::-1], 1) - total[:, None, None])

    def _best(self, logits: Tensor, real: Tensor) -> Tensor:
        """(R, M): Viterbi."""
        alpha = self.begin + logits[:, 0]
        came_from = []
        stay = torch.arange(logits.shape[2], device=logits.device)
        for t in range(1, logits.shape[1]):
            grown, before = (alpha[:, :, None] + self.step).max(1)
            alpha = torch.where(real[:, t, None], grown + logits[:, t], alpha)
            came_from.append(torch.where(real[:, t, None], before, stay))
        label = (alpha + self.end).argmax(1)
        path = [label]
        for before in reversed(came_from):
            label = before.gather(1, label[:, None]).squeeze(1)
            path.append(label)
        return torch.stack(path[::-1], 1)


def _last(real: Tensor) -> Tensor:
    return (real.sum(1) - 1).clamp_min(0)


def _padded(logits: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """(R, M, C) padded logits, and (R, M) bool: False for padding."""
    real = table >= 0
    return torch.where(real[..., None], logits[table.clamp_min(0)], NEVER), real
