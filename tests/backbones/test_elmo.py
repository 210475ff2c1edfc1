"""ELMo's parts against torch's own LSTM and formulas written out; and that neither direction sees the other."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.backbones.elmo import Elmo, ElmoConfig
from keel.interfaces import CachedEncoder
from keel.layers.recurrent.rows import Reading, read_sides
from keel.layers.word_characters import WordCharacters
from keel.learner.learner import Learner, answer_counts
from keel.objectives.bidirectional_lm import BidirectionalLM, BidirectionalLMConfig
from keel.tokenizers.spelling import BEGIN, END, FIRST_BYTE, spell
from keel.tokenizers.whole_words import from_list
from keel.training.loop import weighted_sum
from keel.values import Batch, Rows

WORDS = ["the", "cat", "sat", "on", "mat", "über", "猫", "antidisestablishmentarianism", "a", "I"]
LENGTHS = (9, 6, 6, 3, 1)
FILTERS = [(1, 3), (2, 4), (5, 6)]


def model(seed: int = 0, **options: object) -> Elmo:
    given: dict[str, object] = {"vocabulary": 15, "filters": FILTERS, "cells": 11, "width": 7, "max_characters": 12}
    elmo = Elmo(ElmoConfig(**(given | {"dropout": 0.0} | options)))  # type: ignore[arg-type]
    elmo.init_weights(torch.Generator().manual_seed(seed))
    elmo.attach_tokenizer(from_list(WORDS, lowercase=False))
    with torch.no_grad():
        for parameter in elmo.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + 1))
        elmo.characters.characters.weight[0] = 0
    return elmo.eval()


def test_a_spelling_is_the_bytes_between_two_markers() -> None:
    codes = spell(["ab", "猫", "much longer than that"], 6)
    bytes_of = [FIRST_BYTE + byte for byte in "猫".encode()]
    assert codes[0].tolist() == [BEGIN, FIRST_BYTE + 97, FIRST_BYTE + 98, END, 0, 0]
    assert codes[1].tolist() == [BEGIN, *bytes_of, END, 0]
    assert codes[2].tolist() == [BEGIN, *(FIRST_BYTE + byte for byte in b"much"), END]


def plain_characters(network: WordCharacters, codes: list[int]) -> Tensor:
    """One word, as the papers write it: loops over positions and filters."""
    table = network.characters.weight
    x = [table[code] if code else torch.zeros(table.shape[1]) for code in codes] + [torch.zeros(table.shape[1])] * 9
    found = []
    for convolution in network.filters:
        weight, bias = convolution.weight, convolution.bias
        for number in range(len(weight)):
            sums = []
            for place in range(len(x) - weight.shape[2] + 1):
                inside = sum(torch.dot(weight[number, :, i], x[place + i]) for i in range(weight.shape[2]))
                sums.append(inside + bias[number])  # type: ignore[index]
            found.append(torch.relu(torch.stack(sums).max()))
    y = torch.stack(found)
    for highway in network.highway_layers:
        gate = torch.sigmoid(highway.gate.weight @ y + highway.gate.bias)  # type: ignore[union-attr, operator]
        y = gate * torch.relu(highway.change.weight @ y + highway.change.bias) + (1 - gate) * y  # type: ignore
    return network.projection.weight @ y + network.projection.bias


def test_characters_highways_and_projection_equal_the_formulas() -> None:
    elmo = model()
    codes = spell(WORDS, 12)
    with torch.no_grad():
        ours = elmo.characters(torch.from_numpy(codes))
        plain = torch.stack([plain_characters(elmo.characters, row.tolist()) for row in codes])
    assert float((ours - plain).abs().max()) <= 1e-5


def plain_lstm(network: torch.nn.LSTM, x: Tensor) -> Tensor:
    """One row, gate by gate; h is projected (Sak et al. 2014)."""
    h, c, found = torch.zeros(network.proj_size), torch.zeros(network.hidden_size), []
    for word in x:
        sums = network.weight_ih_l0 @ word + network.bias_ih_l0 + network.weight_hh_l0 @ h + network.bias_hh_l0
        i, f, g, o = sums.chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = network.weight_hr_l0 @ (torch.sigmoid(o) * torch.tanh(c))
        found.append(h)
    return torch.stack(found)


def test_flat_rows_equal_the_formulas_and_torch_row_by_row(make_rows: Callable[..., Rows]) -> None:
    batch = Batch.of(make_rows(LENGTHS, 15), {})
    torch.manual_seed(3)
    network, x = torch.nn.LSTM(5, 11, proj_size=4), torch.randn(sum(LENGTHS), 5)
    with torch.no_grad():
        for backwards in (False, True):
            reading = Reading.of(batch.lengths, x.device, backwards)
            ours = read_sides([network], [x], [reading])[0].split(LENGTHS)
            for row, mine in zip(x.split(LENGTHS), ours, strict=True):
                given = row.flip(0) if backwards else row
                for other in (network(given)[0], plain_lstm(network, given)):
                    assert float((mine - (other.flip(0) if backwards else other)).abs().max()) <= 1e-5


def test_layers_are_stacked_as_published(make_rows: Callable[..., Rows]) -> None:
    """The upper layer's states plus the lower's; the lowest layer is the word twice."""
    elmo, batch = model(), Batch.of(make_rows(LENGTHS[:1], 15), {})
    with torch.no_grad():
        x = elmo.characters(elmo.spellings[batch.ids])
        first, second = elmo.blocks
        ahead = first.forwards(x)[0]  # type: ignore[operator]
        back = first.backwards(x.flip(0))[0]  # type: ignore[operator]
        top = second.forwards(ahead)[0] + ahead, (second.backwards(back)[0] + back).flip(0)  # type: ignore[operator]
        layers = elmo(batch, all_layers=True).layers
    expected = [torch.cat([x, x], 1), torch.cat([ahead, back.flip(0)], 1), torch.cat(top, 1)]
    assert all(float((a - b).abs().max()) <= 1e-5 for a, b in zip(layers, expected, strict=True))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 12), st.data())
def test_neither_direction_sees_the_other(length: int, data: st.DataObject) -> None:
    elmo = model(data.draw(st.integers(0, 3)))
    ids = np.array(data.draw(st.lists(st.integers(0, 14), min_size=length, max_size=length)))
    place = data.draw(st.integers(0, length - 1))
    other = ids.copy()
    other[place] = (other[place] + data.draw(st.integers(1, 14))) % 15

    def layers(words: np.ndarray) -> list[Tensor]:
        keys = np.zeros(1, np.uint64)
        row = Rows(words, (length,), np.zeros(length, int), np.zeros(length, bool), np.ones(length, bool), keys)
        with torch.no_grad():
            return list(elmo(Batch.of(row, {}), all_layers=True).layers[1:])

    for before, after in zip(layers(ids), layers(other), strict=True):
        changed = ((before - after).abs() > 1e-6).reshape(length, 2, -1).any(2)
        assert not changed[:place, 0].any(), "from the left, a word is not seen before its position"
        assert not changed[place + 1 :, 1].any(), "from the right likewise"


def test_words_outside_the_vocabulary_are_read_by_their_spelling() -> None:
    elmo, tokenizer = model(), from_list(WORDS, lowercase=False)
    tokenizer.open = True
    learner = Learner(elmo, {})
    ids = np.concatenate(tokenizer.encode(["the zebra sat", "zebra", "a quagga sat"]))
    assert ids[1] == ids[3] >= tokenizer.size and ids[1] != ids[5] >= tokenizer.size
    lengths = (3, 3, 1)
    order = [0, 1, 2, 4, 5, 6, 3]
    flags = np.zeros(7, bool)
    rows = Rows(ids[order], lengths, flags.astype(int), flags, ~flags, np.zeros(3, np.uint64))
    with torch.no_grad():
        found = elmo(learner.prepare(rows, tokenizer), all_layers=True).layers[0]
        zebra, quagga = elmo.characters(torch.from_numpy(spell(["zebra", "quagga"], 12)))
    for place, word in ((1, zebra), (6, zebra), (4, quagga)):
        assert float((found[place] - torch.cat([word, word])).abs().max()) <= 1e-5
    assert tokenizer.token(int(ids[1])) == "zebra"


def bidirectional_lm(elmo: Elmo, **options: object) -> BidirectionalLM:
    objective = BidirectionalLM(BidirectionalLMConfig(**options), elmo)  # type: ignore[arg-type]
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.normal_(0, 0.3)
    return objective


def test_losses_are_of_the_next_and_of_the_previous_word(make_rows: Callable[..., Rows]) -> None:
    elmo, rows = model(), make_rows(LENGTHS, 15)
    objective = bidirectional_lm(elmo)
    learner = Learner(elmo, {"bidirectional_lm": objective}).eval()
    with torch.no_grad():
        batch = learner.prepare(rows, from_list(WORDS, lowercase=False))
        scores, states = learner(batch), elmo(batch).vectors
        sums = [0.0, 0.0]
        for row, stop in zip(rows.lengths, np.cumsum(rows.lengths), strict=True):
            for place in range(stop - row, stop):
                for way, (step, allowed) in enumerate(((1, place + 1 < stop), (-1, place > stop - row))):
                    if allowed:
                        half = states[place].chunk(2)[way]
                        logits = objective.table.weight @ half + objective.bias  # type: ignore[union-attr]
                        sums[way] -= float(logits.log_softmax(0)[rows.ids[place + step]])
    assert math.isclose(float(scores["bidirectional_lm"].loss), sums[0], rel_tol=1e-5)
    assert math.isclose(float(scores["bidirectional_lm.backward"].loss), sums[1], rel_tol=1e-5)


def test_the_sampled_softmax_has_the_same_gradient_on_average(make_rows: Callable[..., Rows]) -> None:
    """Over many samples it is that of the full softmax, as nearly as a sample of that size allows."""
    elmo, tokenizer = model(), from_list(WORDS, lowercase=False)
    whole, sampled = bidirectional_lm(elmo), bidirectional_lm(elmo, sample=64)
    counts = np.arange(1, 16) ** 2
    for objective in (whole, sampled):
        objective.attach_corpus(tokenizer, counts.copy)

    def gradient(objective: BidirectionalLM, key: int) -> Tensor:
        rows = make_rows(LENGTHS, 15)
        keyed = Rows(rows.ids, rows.lengths, rows.segments, rows.special, rows.word_starts, rows.keys + np.uint64(key))
        learner = Learner(elmo, {"bidirectional_lm": objective}).train()
        learner.zero_grad()
        batch = learner.prepare(keyed, tokenizer)
        weighted_sum(learner(batch), answer_counts(batch)).backward()
        return objective.table.weight.grad.clone()  # type: ignore[union-attr]

    exact = gradient(whole, 0)
    mean = torch.stack([gradient(sampled, key) for key in range(200)]).mean(0)
    assert float(torch.cosine_similarity(exact.flatten(), mean.flatten(), dim=0)) > 0.99
    assert 0.9 < float(mean.norm() / exact.norm()) < 1.1


def test_output_vectors_from_characters(make_rows: Callable[..., Rows]) -> None:
    """Two words of one spelling have one vector, but for their corrections (Jozefowicz et al. 2016), which are of low
    rank; and a word's vector does not depend on the words it is asked for with."""
    elmo = model()
    elmo.spellings[7] = elmo.spellings[11]
    objective = bidirectional_lm(elmo, output="characters", correction=5)
    with torch.no_grad():
        every = objective._vectors(CachedEncoder(elmo))
        some = objective._vectors(CachedEncoder(elmo), torch.tensor([3, 11]))
        assert torch.allclose(some, every[[3, 11]], atol=1e-5)
        assert float((every[7] - every[11]).abs().max()) > 1e-2
        objective.corrections.weight.zero_()
        spelt = objective._vectors(CachedEncoder(elmo))
    assert torch.allclose(spelt[7], spelt[11], atol=1e-6) and float((spelt[3] - spelt[11]).abs().max()) > 1e-2
    assert torch.linalg.matrix_rank(every - spelt, rtol=1e-4) == 5
