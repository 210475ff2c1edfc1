"""The CRF against the definition: every sequence of labels listed, scored and summed."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch

from keel.layers.crf import CRF

LABELS = 3


def table(counts: list[int]) -> torch.Tensor:
    """Which word stands where, -1 behind each row's last."""
    numbers = iter(range(sum(counts)))
    longest = max(counts)
    return torch.tensor([[next(numbers) for _ in range(n)] + [-1] * (longest - n) for n in counts])


def listed(crf: CRF, logits: torch.Tensor) -> dict[tuple[int, ...], torch.Tensor]:
    """The score of every sequence, from the formula."""
    scores = {}
    for labels in product(range(LABELS), repeat=len(logits)):
        score = crf.begin[labels[0]] + crf.end[labels[-1]]
        score = score + sum(logits[t, label] for t, label in enumerate(labels))
        scores[labels] = score + sum((crf.step[a, b] for a, b in pairwise(labels)), torch.zeros(()))
    return scores


@pytest.fixture
def crf() -> CRF:
    torch.manual_seed(1)
    layer = CRF(LABELS)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


@pytest.mark.parametrize("counts", [[1], [4], [4, 2, 1], [3, 0, 2]])
def test_loss_best_sequence_and_probabilities(crf: CRF, counts: list[int]) -> None:
    logits = torch.randn(sum(counts), LABELS)
    answers = torch.randint(LABELS, (sum(counts),))
    number = table(counts)
    wanted_loss, wanted = torch.zeros(()), []
    for part, gold in zip(logits.split(counts), answers.split(counts), strict=True):
        if not len(part):
            continue
        scores = listed(crf, part)
        total = torch.logsumexp(torch.stack(list(scores.values())), 0)
        wanted_loss = wanted_loss + total - scores[tuple(gold.tolist())]
        best = max(scores, key=lambda labels: float(scores[labels].detach()))
        for place, label in enumerate(best):
            chance = sum(torch.exp(s - total) for labels, s in scores.items() if labels[place] == label)
            wanted.append([float(label), float(chance)])
    assert float(crf.loss(logits, answers, number)) == pytest.approx(float(wanted_loss), abs=1e-4)
    torch.testing.assert_close(crf.decode(logits, number).detach(), torch.tensor(wanted), atol=1e-5, rtol=0)


def test_padding_takes_no_part_in_the_gradient(crf: CRF) -> None:
    logits = torch.randn(6, LABELS, requires_grad=True)
    answers = torch.tensor([0, 1, 2, 0, 1, 2])
    crf.loss(logits, answers, table([4, 2])).backward()
    together = logits.grad.clone()
    assert torch.isfinite(together).all()
    alone = []
    for part, gold in zip(logits.detach().split([4, 2]), answers.split([4, 2]), strict=True):
        own = part.clone().requires_grad_()
        crf.loss(own, gold, table([len(own)])).backward()
        alone.append(own.grad)
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=0)
