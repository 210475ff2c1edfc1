"""Skip-gram and CBOW: the compiled loops do what the published formulas say, and so does the held-out loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from keel.backbones.word2vec import Word2Vec, Word2VecConfig
from keel.errors import UserError
from keel.interfaces import CachedEncoder
from keel.objectives.cbow import Cbow, CbowConfig
from keel.objectives.skip_gram import SkipGram, SkipGramConfig
from keel.values import Batch, Rows

SIZE, WIDTH = 40, 12
KINDS = {"skip_gram": (SkipGram, SkipGramConfig), "cbow": (Cbow, CbowConfig)}


class Vocabulary:
    size, pad, unk, cls, sep, mask = SIZE, 0, 1, 2, 3, 4


def make(kind: str, **options: Any) -> tuple[Word2Vec, SkipGram]:
    source = torch.Generator().manual_seed(3)
    backbone = Word2Vec(Word2VecConfig(vocabulary=SIZE, width=WIDTH))
    backbone.tokens.weight.data.normal_(0, 0.5, generator=source)
    objective, config = KINDS[kind]
    made = objective(config(**options), backbone)
    made.out.data.normal_(0, 0.5, generator=source)
    counts = np.arange(SIZE, dtype=np.int64) ** 2
    made.attach_corpus(Vocabulary(), counts.copy)  # type: ignore[arg-type]
    return backbone, made


def make_rows(*lengths: int) -> Rows:
    total = sum(lengths)
    ids = np.random.default_rng(1).integers(5, SIZE, total)
    special = np.zeros(total, bool)
    special[np.cumsum(lengths) - np.array(lengths)] = True
    ids[special] = Vocabulary.cls
    keys = np.arange(7, 7 + len(lengths), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return Rows(ids, lengths, np.zeros(total, np.int64), special, ~special, keys)


class Numbers:
    """The loops' own source of random numbers, in Python's integers."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state

    def below(self, limit: int) -> int:
        return ((self.next() >> 32) * limit) >> 32


def by_hand(kind: str, rows: Rows, inputs: np.ndarray, outputs: np.ndarray, made: SkipGram, rate: float) -> float:
    """Mikolov et al. 2013 in double precision; all words of a pair are scored before any is updated. Returns the sum
    of all losses."""
    keep, noise = made._keep_and_noise()
    config, total = made.config, 0.0
    for row, start in enumerate(rows.starts):
        numbers = Numbers(int(rows.keys[row]))
        mine = rows.ids[start : start + rows.lengths[row]]
        kept = [int(id) for id in mine if (numbers.next() >> 40) < float(keep[id] * np.float32(2**24))]
        for i, word in enumerate(kept):
            reach = config.window - numbers.below(config.window)
            around = [kept[j] for j in range(max(0, i - reach), min(len(kept), i + reach + 1)) if j != i]
            for group in [[near] for near in around] if kind == "skip_gram" else [around] if around else []:
                v = inputs[group].mean(0)
                drawn = [int(noise[numbers.below(len(noise))]) for _ in range(config.negatives)]
                targets = [word, *(other for other in drawn if other != word)]
                signs = np.array([1.0] + [-1.0] * (len(targets) - 1))
                chances = 1 / (1 + np.exp(-signs * (outputs[targets] @ v)))
                total -= np.log(chances).sum()
                move = np.zeros_like(v)
                for target, gradient in zip(targets, signs * (1 - chances) * rate, strict=True):
                    move += gradient * outputs[target]
                    outputs[target] = outputs[target] + gradient * v
                for near in group:
                    inputs[near] = inputs[near] + move
    return total


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("sample", [1.0, 0.005])
def test_the_loops_equal_the_published_formulas(kind: str, sample: float) -> None:
    torch.set_num_threads(1)
    backbone, made = make(kind, window=3, negatives=4, sample=sample)
    rows = make_rows(30, 17, 2)
    inputs, outputs = (table.detach().double().numpy().copy() for table in (backbone.tokens.weight, made.out))
    before = inputs.copy()
    expected = by_hand(kind, rows, inputs, outputs, made, rate=0.05)
    assert (made._keep()[rows.ids[~rows.special]] < 1).any() == (sample < 1)
    score = made.update(backbone, rows, 0.05)[made.name]
    assert float(score.loss) == pytest.approx(expected, rel=5e-3), "the sigmoid is a table"
    assert score.count > 20 and np.abs(inputs - before).max() > 0.05
    np.testing.assert_allclose(backbone.tokens.weight.detach().numpy(), inputs, atol=2e-3)
    np.testing.assert_allclose(made.out.detach().numpy(), outputs, atol=2e-3)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_held_out_loss_is_the_formula(kind: str) -> None:
    backbone, made = make(kind, window=2, negatives=3, sample=1.0)
    rows = make_rows(9, 6)
    rows, targets = made.prepare(rows, Vocabulary())  # type: ignore[arg-type]
    batch = Batch.of(rows, targets)
    noise = made._noise(batch)
    v, o = backbone.tokens.weight.detach(), made.out.detach()
    loss, count = 0.0, 0
    for row, start in enumerate(rows.starts):
        places = range(int(start) + 1, int(start) + rows.lengths[row])  # the first is [CLS]
        for i in places:
            around = [j for j in places if 0 < abs(i - j) <= 2]
            for group in [[j] for j in around] if kind == "skip_gram" else [around]:
                vector = v[rows.ids[group]].mean(0)
                word = int(rows.ids[i])
                others = [int(n) for n in noise[i] if int(n) != word]
                loss -= math.log(torch.sigmoid(vector @ o[word]))
                loss -= sum(math.log(torch.sigmoid(-vector @ o[n])) for n in others)
                count += 1
    with torch.no_grad():
        score = made(CachedEncoder(backbone), batch)[kind]
    assert score.count == count and float(score.loss) == pytest.approx(loss, rel=1e-5)


def test_subsampling_and_noise_are_as_published() -> None:
    _, made = make("skip_gram", sample=1e-3, power=0.75)
    counts = np.arange(SIZE, dtype=np.float64) ** 2
    counts[:5] = 0  # special tokens and [UNK]
    share = counts / counts.sum()
    keep, noise = made._keep_and_noise()
    published = np.minimum(1, (np.sqrt(share[5:] / 1e-3) + 1) * 1e-3 / share[5:])
    np.testing.assert_allclose(keep[5:], published, rtol=1e-5)
    assert (keep[:5] == 0).all() and noise.min() >= 5
    drawn = np.bincount(noise, minlength=SIZE) / len(noise)
    np.testing.assert_allclose(drawn, counts**0.75 / (counts**0.75).sum(), atol=1e-5)


def test_words_with_the_same_neighbours_become_similar() -> None:
    """Two sets of words that never occur together: nearest words come from the same set."""
    torch.set_num_threads(1)
    backbone = Word2Vec(Word2VecConfig(vocabulary=SIZE, width=WIDTH))
    backbone.init_weights(torch.Generator().manual_seed(1))
    made = SkipGram(SkipGramConfig(sample=1.0), backbone)
    source = np.random.default_rng(0)
    halves = [np.arange(6, 20), np.arange(20, 34)]
    for _ in range(60):
        ids = np.concatenate([source.choice(halves[row % 2], 50) for row in range(20)])
        none = np.zeros(len(ids), bool)
        keys = source.integers(0, 2**63, 20).astype(np.uint64)
        made.update(backbone, Rows(ids, (50,) * 20, np.zeros(len(ids), np.int64), none, ~none, keys), 0.05)
    v = torch.nn.functional.normalize(backbone.tokens.weight.detach()[6:34], dim=1)
    nearest = (v @ v.T - 2 * torch.eye(28)).argmax(1)
    assert ((nearest < 14) == (torch.arange(28) < 14)).all()


def test_mistakes() -> None:
    _, made = make("skip_gram")
    with pytest.raises(UserError, match="fewer than two different words"):
        made.attach_corpus(Vocabulary(), lambda: np.eye(1, SIZE, 7, dtype=np.int64)[0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        SkipGramConfig(window=0)
