"""fastText: which n-grams a word has, what an unseen word's vector is, and that the loops equal the formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keel.backbones.fasttext import PARTS, FastText, FastTextConfig
from keel.errors import UserError
from keel.learner.learner import Learner
from keel.objectives.cbow import Cbow, CbowConfig
from keel.objectives.skip_gram import SkipGram, SkipGramConfig
from keel.recipe import load
from keel.tokenizers.spelling import grams, spell, unspell
from keel.tokenizers.whole_words import from_list
from keel.values import Rows

WORDS = ["keel", "keels", "heel", "mast", "a", "sailor", "sailing", "港口"]
KINDS = {"skip_gram": (SkipGram, SkipGramConfig), "cbow": (Cbow, CbowConfig)}


def make(buckets: int = 1000) -> FastText:
    model = FastText(FastTextConfig(vocabulary=13, width=8, buckets=buckets))
    model.rows.weight.data.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    model.attach_tokenizer(from_list(WORDS, lowercase=True))
    return model


def all_grams(word: str, min_n: int, max_n: int) -> list[str]:
    marked = f"<{word}>"
    return [marked[i : i + n] for n in range(min_n, max_n + 1) for i in range(len(marked) - n + 1) if n < len(marked)]


@given(st.text(max_size=12), st.integers(1, 4), st.integers(0, 3))
def test_a_word_has_the_published_ngrams(word: str, min_n: int, more: int) -> None:
    """N-grams are numbers: as many, and equal where the n-grams are equal."""
    expected = all_grams(word, min_n, min_n + more)
    found = grams(word, min_n, min_n + more, 1 << 40)
    assert len(found) == len(expected)
    assert len(set(found)) == len(set(expected)), "of 2^32 numbers, a dozen n-grams share none"


@given(st.text(max_size=20))
def test_spelling_and_back(word: str) -> None:
    whole = word.encode(errors="replace").decode()
    assert unspell(spell([word], 100)[0]) == whole


def test_a_word_is_the_mean_of_its_parts_and_an_unseen_one_of_its_ngrams() -> None:
    model = make()
    rows = model.rows.weight.detach()
    for id, word in enumerate(WORDS, 5):
        mine = [id, *(13 + n for n in grams(word, 3, 6, 1000))][:PARTS]
        torch.testing.assert_close(model.token_embeddings()[id].detach(), rows[mine].mean(0))
    parts = [13 + n for n in grams("keelson", 3, 6, 1000)]
    torch.testing.assert_close(model.vector_of("keelson").detach(), rows[parts[:PARTS]].mean(0))
    assert float(model.vector_of("").detach().abs().sum()) == 0, "nothing is made of nothing"


def test_unseen_words_in_a_batch_are_the_mean_of_their_ngrams() -> None:
    model, tokenizer = make(), from_list(WORDS, lowercase=True)
    tokenizer.open = True
    (ids,) = tokenizer.encode(["keel keelson mast"])
    none = np.zeros(3, bool)
    rows = Rows(ids.astype(np.int64), (3,), np.zeros(3, np.int64), none, ~none, np.zeros(1, np.uint64))
    with torch.no_grad():
        vectors = model(Learner(model, {}).prepare(rows, tokenizer)).vectors
        torch.testing.assert_close(vectors[1], model.vector_of("keelson"))
        torch.testing.assert_close(vectors[[0, 2]], model.token_embeddings()[[5, 8]])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_loops_update_every_part_by_the_full_gradient(kind: str) -> None:
    """One pair by hand, without noise: window 1, two words."""
    torch.set_num_threads(1)
    model = make()
    objective, config = KINDS[kind]
    made = objective(config(window=1, negatives=1, sample=1.0), model)
    made.out.data.normal_(0, 0.5, generator=torch.Generator().manual_seed(2))
    counts = np.zeros(13, np.int64)
    counts[[5, 8]] = 10
    made.attach_corpus(from_list(WORDS, lowercase=True), counts.copy)
    rows, outputs = (table.detach().double().numpy().copy() for table in (model.rows.weight, made.out))
    parts = {id: [int(p) for p in model.parts[id] if p >= 0] for id in (5, 8)}
    _, noise = made._keep_and_noise()
    key = 12345
    given = Rows(
        np.array([5, 8]), (2,), np.zeros(2, int), np.zeros(2, bool), np.ones(2, bool), np.array([key], np.uint64)
    )
    loss = 0.0
    state = key

    def draw() -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return state

    draw(), draw()  # both words are kept
    for word, near in ((5, 8), (8, 5)):
        draw()  # the window's width is always 1
        v, move = rows[parts[near]].mean(0), np.zeros(8)
        for k in range(2):
            target = int(noise[((draw() >> 32) * len(noise)) >> 32]) if k else word
            if k and target == word:
                continue
            sign = -1.0 if k else 1.0
            chance = 1 / (1 + math.exp(-sign * float(v @ outputs[target])))
            loss -= math.log(chance)
            move += sign * (1 - chance) * 0.1 * outputs[target]
            outputs[target] += sign * (1 - chance) * 0.1 * v
        for part in parts[near]:
            rows[part] += move
    score = made.update(model, given, 0.1)[made.name]
    assert score.count == 2 and float(score.loss) == pytest.approx(loss, rel=5e-3)
    np.testing.assert_allclose(model.rows.weight.detach().numpy(), rows, atol=2e-3)
    np.testing.assert_allclose(made.out.detach().numpy(), outputs, atol=2e-3)


def test_impossible_sizes_are_one_line() -> None:
    with pytest.raises(UserError, match=r"model\.backbone\.min_n.*greater than or equal to 1, found 0"):
        load("fasttext", ["model.backbone.min_n=0"])
    with pytest.raises(UserError, match="min_n 5 is above max_n 4"):
        load("fasttext", ["model.backbone.min_n=5", "model.backbone.max_n=4"])
