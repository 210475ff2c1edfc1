"""Masked language modelling: how many tokens are masked, which and how; logits are computed at selected ones only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.backbones.bert import Bert, BertConfig
from keel.interfaces import CachedEncoder
from keel.learner.learner import Learner
from keel.objectives._masking import special_ids
from keel.objectives.masked_lm import CANDIDATES, MaskedLM, MaskedLMConfig
from keel.values import Batch, Rows

SIZE = 120


class Vocabulary:
    """All that masking needs of a tokenizer."""

    size, pad, unk, cls, sep, mask = SIZE, 0, 1, 2, 3, 4


@pytest.fixture(scope="module")
def backbone() -> Bert:
    config = BertConfig(vocabulary=SIZE, layers=1, width=16, heads=2, feed_forward=32, positions=64, dropout=0)
    bert = Bert(config)
    bert.init_weights(torch.Generator().manual_seed(0))
    return bert.eval()


def objective(backbone: Bert, **options: float) -> MaskedLM:
    torch.manual_seed(1)
    head = MaskedLM(MaskedLMConfig(**options), backbone)
    with torch.no_grad():
        head.head.bias.normal_()
    return head


def hide(head: MaskedLM, rows: Rows) -> tuple[Rows, np.ndarray, np.ndarray]:
    hidden, targets = head.prepare(rows, Vocabulary())  # type: ignore[arg-type]
    return hidden, targets["masked_lm.places"], targets["masked_lm.answers"]


@given(st.lists(st.integers(4, 60), min_size=1, max_size=12), st.floats(0.01, 0.99), st.integers(0, 1000))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_row_masks_its_exact_share(
    make_rows: Callable[..., Rows], backbone: Bert, lengths: list[int], mask_prob: float, seed: int
) -> None:
    rows = make_rows(lengths, SIZE, seed)
    hidden, places, answers = hide(objective(backbone, mask_prob=mask_prob), rows)
    ordinary = np.bincount(rows.row_of_token, weights=~rows.special)
    found = np.bincount(rows.row_of_token[places], minlength=len(lengths))
    assert found.tolist() == [max(1, round(mask_prob * n)) for n in ordinary]
    assert not rows.special[places].any()
    assert len(set(places.tolist())) == len(places)
    assert np.array_equal(answers, rows.ids[places])
    changed = np.flatnonzero(hidden.ids != rows.ids)
    assert set(changed.tolist()) <= set(places.tolist())
    shown = hidden.ids[places]
    assert (np.isin(shown, special_ids(Vocabulary())) <= (shown == Vocabulary.mask)).all()  # type: ignore[arg-type]
    assert np.array_equal(rows.ids, make_rows(lengths, SIZE, seed).ids), "the rows themselves are not written to"


def test_unknown_and_special_tokens_are_never_selected(make_rows: Callable[..., Rows], backbone: Bert) -> None:
    rows = make_rows([60] * 50, SIZE)
    rows.ids[::3] = np.random.default_rng(0).choice(special_ids(Vocabulary()), len(rows.ids[::3]))  # type: ignore[arg-type]
    rows.special[1::4] = True  # whatever token stands there
    _, places, _ = hide(objective(backbone, mask_prob=0.5), rows)
    assert not rows.special[places].any()
    assert not np.isin(rows.ids[places], special_ids(Vocabulary())).any()  # type: ignore[arg-type]


def test_a_row_of_unknown_tokens_has_no_answers_and_no_loss(make_rows: Callable[..., Rows], backbone: Bert) -> None:
    rows = make_rows([10, 8], SIZE)
    rows.ids[~rows.special] = Vocabulary.unk
    head = objective(backbone)
    hidden, targets = head.prepare(rows, Vocabulary())  # type: ignore[arg-type]
    score = head(CachedEncoder(backbone), Batch.of(hidden, targets))["masked_lm"]
    assert score.count == 0 and float(score.loss.detach()) == 0.0
    score.loss.backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in head.parameters())


@pytest.mark.parametrize("mask, random", [(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.25)])
def test_selected_tokens_become_mask_random_or_stay_in_their_shares(
    make_rows: Callable[..., Rows], backbone: Bert, mask: float, random: float
) -> None:
    """About 11,000 chosen tokens: the bounds are more than five standard deviations wide."""
    rows = make_rows([64] * 1200, SIZE)
    hidden, places, answers = hide(objective(backbone, mask_replace_prob=mask, random_replace_prob=random), rows)
    shown = hidden.ids[places]
    masked, stayed = (shown == Vocabulary.mask).mean(), (shown == answers).mean()
    by_chance = random / (SIZE - 5)  # a random token may be the token itself
    bound = 5.5 * 0.5 / len(places) ** 0.5
    assert len(places) > 10_000
    assert abs(masked - mask) <= bound * (0 < mask < 1)
    assert abs(stayed - (1 - mask - random) - by_chance) <= bound
    drawn = shown[(shown != Vocabulary.mask) & (shown != answers)]
    if random:
        counts = np.bincount(drawn, minlength=SIZE)
        assert not counts[:5].any() and (counts[5:] > 0).all(), "every ordinary token is drawn"
        expected = len(drawn) / (SIZE - 5)
        assert ((counts[5:] - expected) ** 2 / expected).sum() < 2 * SIZE, "drawn evenly (chi squared)"


def test_every_position_is_selected_equally_often(make_rows: Callable[..., Rows], backbone: Bert) -> None:
    rows = make_rows([43] * 3000, SIZE)
    _, places, _ = hide(objective(backbone), rows)
    counts = np.bincount(rows.position_of_token[places], minlength=43)[~rows.special[:43]]
    expected = len(places) / 40
    assert ((counts - expected) ** 2 / expected).sum() < 80


def test_masks_depend_on_the_row_key_alone(make_rows: Callable[..., Rows], backbone: Bert) -> None:
    """Not on the other rows, nor on when the row comes; another key masks other tokens."""
    head = objective(backbone)
    rows = make_rows([50, 40, 30, 20], SIZE)
    together, _, _ = hide(head, rows)
    stops = np.cumsum(rows.lengths)
    for row in (2, 0, 3, 1):
        alone, _, _ = hide(head, rows.pick([row]))
        assert np.array_equal(alone.ids, together.ids[stops[row] - rows.lengths[row] : stops[row]])
    rows.keys[:] += np.uint64(1)
    assert not np.array_equal(hide(head, rows)[0].ids, together.ids)


def test_logits_at_selected_tokens_equal_the_full_computation(make_rows: Callable[..., Rows], backbone: Bert) -> None:
    rows = make_rows([33, 20, 20, 7], SIZE)
    head = objective(backbone)
    hidden, targets = head.prepare(rows, Vocabulary())  # type: ignore[arg-type]
    batch = Batch.of(hidden, targets)
    vectors = backbone(batch).vectors
    everywhere = F.linear(head.head.norm(F.gelu(head.head.dense(vectors))), backbone.token_embeddings(), head.head.bias)
    places = torch.from_numpy(targets["masked_lm.places"])
    assert torch.allclose(head.predict(CachedEncoder(backbone), batch), everywhere[places], atol=1e-6)
    score = head(CachedEncoder(backbone), batch)["masked_lm"]
    labels = torch.full((len(rows.ids),), -100)
    labels[places] = torch.from_numpy(targets["masked_lm.answers"])
    assert torch.allclose(score.loss, F.cross_entropy(everywhere, labels, reduction="sum"), rtol=1e-6)
    assert int(score.correct) == int((everywhere.argmax(1) == labels).sum())
    assert score.count == len(places)


def test_similar_tokens_are_the_nearest_ones(make_learner: Callable[..., Learner], vocabulary: Any, rows: Rows) -> None:
    options = {"mask_replace_prob": 0.0, "similar_replace_prob": 0.8, "random_replace_prob": 0.1}
    learner = make_learner("bert", {"masked_lm": options})
    batch = learner.prepare(rows, vocabulary)
    original, places = torch.from_numpy(rows.ids), batch.targets["masked_lm.similar"]
    assert 0.75 < len(places) / len(batch.targets["masked_lm.places"]) < 0.85
    assert not (batch.ids == vocabulary.mask).any()
    shown, _ = learner.corrupt(learner.encoder(), batch)
    table = F.normalize(learner.backbone.token_embeddings().detach(), dim=1)
    for place in places.tolist():
        similarity = table @ table[original[place]]
        similarity[[*special_ids(vocabulary), int(original[place])]] = -2
        assert int(shown.ids[place]) in similarity.topk(CANDIDATES).indices.tolist()
    different = len({int(shown.ids[p]) for p in places.tolist()})
    assert different > CANDIDATES, "not always the same one"


@pytest.mark.parametrize(
    "options",
    [{"mask_replace_prob": 0.9, "random_replace_prob": 0.2}, {"mask_prob": 0}, {"mask_prob": 1.5}, {"weight": 0}],
)
def test_impossible_shares_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        MaskedLMConfig(**options)
