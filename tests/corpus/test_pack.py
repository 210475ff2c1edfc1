"""Packing: what every plan keeps to, whatever the documents; and the shares BERT asks for.

A packer sees a corpus only through sentence bounds and content hashes, so here a corpus is a list of documents, each
a list of sentence lengths.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.corpus.pack_order import OrderPacker
from keel.corpus.pack_pairs import SPECIALS, PairPacker
from keel.corpus.pack_sentences import SentencePacker
from keel.corpus.plan import Plan
from keel.errors import UserError
from keel.recipe import load
from keel.stages.data import open_data


class Lengths:
    """Documents as lists of sentence lengths, laid out end to end. `contents` gives copies the same number."""

    def __init__(self, documents: list[list[int]], contents: list[int] | None = None) -> None:
        starts = np.cumsum([0, *(sum(d) for d in documents)])
        self.bounds = [np.cumsum([start, *d]) for start, d in zip(starts, documents, strict=False)]
        self.hashes = np.array(contents or range(len(documents)), dtype=np.uint64)
        self.starts = starts

    def sentence_bounds(self, document: int) -> np.ndarray:
        return self.bounds[document]

    def document_of(self, start: int, stop: int) -> int:
        """The document a token range lies in; it must not cross into another."""
        document = int(np.searchsorted(self.starts, start, side="right")) - 1
        assert self.starts[document] <= start < stop <= self.starts[document + 1]
        return document


def plan(corpus: Lengths, length: int, seed: int = 0, short: float = 0.1, random: float = 0.5) -> Plan:
    everything = np.arange(len(corpus.bounds))
    packer = PairPacker(corpus, everything, length, short, random)  # type: ignore[arg-type]
    return packer.plan(everything, np.random.default_rng(seed))


def rows_of(pairs: Plan) -> list[tuple[int, int, int, int, int]]:
    assert pairs.first.tolist() == list(range(0, 2 * len(pairs) + 1, 2))
    rows = np.column_stack([pairs.ranges.reshape(-1, 4), pairs.answers["next_sentence"]])
    return [tuple(map(int, row)) for row in rows]  # type: ignore[misc]


sentence_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=12)
corpora = st.builds(
    lambda documents, copies: Lengths(documents + documents[:copies], [*range(len(documents)), *range(copies)]),
    st.lists(sentence_lengths, min_size=2, max_size=8),
    st.integers(0, 2),
)
shares = st.floats(0, 1)


@given(corpora, st.integers(8, 70), st.integers(0, 2**32), shares, shares)
@settings(max_examples=300, deadline=None)
def test_every_plan_keeps_the_contract(
    corpus: Lengths, length: int, seed: int, short: float, random_share: float
) -> None:
    longest = max(int(np.diff(b).max()) for b in corpus.bounds)
    own: list[tuple[int, int]] = []
    full = 0
    for a_start, a_stop, b_start, b_stop, is_random in rows_of(plan(corpus, length, seed, short, random_share)):
        size = a_stop - a_start + b_stop - b_start + SPECIALS
        assert a_stop > a_start and b_stop > b_start
        assert size <= length
        full += size == length
        a, b = corpus.document_of(a_start, a_stop), corpus.document_of(b_start, b_stop)
        own.append((a_start, a_stop))
        if is_random:
            assert corpus.hashes[a] != corpus.hashes[b]
        else:
            own.append((b_start, b_stop))
            assert a == b
            assert 0 <= b_start - a_stop <= (longest if size == length else 0)
            between = corpus.bounds[a]
            assert ((between >= a_stop) & (between <= b_start)).any(), "B begins where a sentence of A's text ended"
    # BERT's procedure reads each document through once: A and a following B are the document's own text, in order and
    # never twice. Only truncation loses tokens, never more than one sentence's worth in a row that came out full.
    own.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(own))
    lost = int(corpus.starts[-1]) - sum(stop - start for start, stop in own)
    assert 0 <= lost <= full * longest


@given(corpora, st.integers(0, 2**32), shares)
@settings(max_examples=100, deadline=None)
def test_rows_long_enough_lose_nothing(corpus: Lengths, seed: int, random_share: float) -> None:
    """Where nothing is cut, each token is its document's own text exactly once an epoch."""
    pairs = plan(corpus, 2 * int(corpus.starts[-1]) + SPECIALS, seed, 0.0, random_share)
    own = [(a, b) for a, b, _, _, _ in rows_of(pairs)] + [(c, d) for _, _, c, d, r in rows_of(pairs) if not r]
    covered = np.concatenate([np.arange(start, stop) for start, stop in own])
    assert sorted(covered.tolist()) == list(range(int(corpus.starts[-1])))


@given(corpora, st.integers(8, 70), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_plan_is_a_function_of_its_seed(corpus: Lengths, length: int, seed: int) -> None:
    assert rows_of(plan(corpus, length, seed)) == rows_of(plan(corpus, length, seed))


def many(seed: int, count: int, low: int, high: int) -> Lengths:
    source = np.random.default_rng(seed)
    return Lengths([source.integers(3, 25, source.integers(low, high)).tolist() for _ in range(count)])


@pytest.mark.parametrize("length", [64, 128])
@pytest.mark.parametrize("sentences", [(8, 30), (2, 9)], ids=["long", "short"])
def test_half_of_the_pairs_are_random(sentences: tuple[int, int], length: int) -> None:
    pairs = plan(many(1, 1500, *sentences), length)
    assert len(pairs) > 1500
    assert abs(float(pairs.answers["next_sentence"].mean()) - 0.5) < 0.03


@pytest.mark.parametrize("wanted", [0.0, 0.25, 1.0])
def test_the_share_of_random_pairs_is_the_recipes(wanted: float) -> None:
    """Long documents of short sentences: rows of one sentence, which must be random, are rare."""
    pairs = plan(many(2, 300, 40, 80), 128, random=wanted)
    assert abs(float(pairs.answers["next_sentence"].mean()) - wanted) < 0.04


def test_one_row_in_ten_aims_at_a_shorter_length() -> None:
    """Sentences of one token fill every target exactly, so a row below the length aimed lower or ended a document."""
    corpus = Lengths([[1] * 4000] * 30, list(range(30)))
    pairs = plan(corpus, 64, random=0.0)
    short = (pairs.lengths < 64).sum() - 30
    assert 0.08 < short / len(pairs) < 0.12
    assert ((plan(corpus, 64, random=0.0, short=0.0).lengths < 64).sum()) <= 30


def test_truncation_takes_from_the_longer_segment_and_from_both_ends() -> None:
    """A sentence longer than the row gives its front in some rows and its back in others."""
    pairs = plan(Lengths([[5, 300]] * 200, list(range(200))), 64, short=0.0, random=0.0)
    follows = pairs.answers["next_sentence"] == 0
    assert follows.any()
    a_start, a_stop, b_start, _ = pairs.ranges.reshape(-1, 4).T
    a_lengths, fronts = a_stop - a_start, b_start - a_stop
    assert (a_lengths[follows] == 5).all(), "the shorter segment keeps all of its tokens"
    assert (pairs.lengths[follows] == 64).all()
    lost = 300 - (64 - SPECIALS - 5)
    assert 0.4 < fronts[follows].mean() / lost < 0.6


def test_random_text_is_never_a_copy_of_the_document_itself() -> None:
    """A text that occurs in nearly every document (a licence, a notice) must not be labelled as foreign to itself."""
    corpus = Lengths([[4, 4, 4]] * 400, [7] * 399 + [8])
    for a_start, a_stop, b_start, b_stop, is_random in rows_of(plan(corpus, 16)):
        if is_random:
            a, b = corpus.document_of(a_start, a_stop), corpus.document_of(b_start, b_stop)
            assert corpus.hashes[a] != corpus.hashes[b]


class Reads:
    """Which documents of a corpus were read, through `Corpus.ids`."""

    def __init__(self, corpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.starts = np.concatenate([[0], np.cumsum(corpus.document_tokens)])
        self.documents: list[int] = []
        read = corpus.ids

        def ids(start: int, stop: int) -> np.ndarray:
            self.documents.append(int(np.searchsorted(self.starts, start, side="right")) - 1)
            return read(start, stop)

        monkeypatch.setattr(corpus, "ids", ids)


def test_held_out_documents_never_occur_in_training_rows(
    corpus_path: Path, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = open_data(load("bert-tiny", tiny), str(corpus_path), None)
    reads = Reads(data.corpus, monkeypatch)
    cursors: dict[str, Any] = {}
    while not cursors or cursors["main"].epoch < 2:
        _, cursors = data.slices(0.0, cursors)
    seen = set(reads.documents)
    assert seen == set(np.flatnonzero(~data.corpus.held_out).tolist()), "every training document, and no other"
    assert data.corpus.held_out.any()


def small_corpus(folder: Path, tokenizer_path: Path, texts: list[str], held_out: float) -> str:
    import json

    from keel.stages.corpus import build

    folder.mkdir(exist_ok=True)
    (folder / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    build([str(folder / "texts.jsonl")], str(tokenizer_path), str(folder / "corpus"), workers=1, held_out=held_out)
    return str(folder / "corpus")


def test_a_single_held_out_document_is_not_paired_with_itself_as_random(
    tmp_path: Path, tokenizer_path: Path, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small corpora hold out one document. Evaluation must not call its own sentences foreign to it."""
    texts = [f"The captain number {i} sails. The ship follows him. The mast is broken. A gull sings." for i in range(8)]
    path = small_corpus(tmp_path / "one", tokenizer_path, texts, held_out=0.0001)
    from keel.corpus.store import Corpus

    opened = Corpus.open(path)
    assert opened.held_out.sum() == 1
    reads: list[Reads] = []
    monkeypatch.setattr(Corpus, "open", lambda *_: (reads.append(Reads(opened, monkeypatch)), opened)[1])
    data = open_data(load("bert-tiny", tiny), path, None)
    labels = np.concatenate([rows.answers["next_sentence"] for rows in data.held_out])
    documents = np.array(reads[0].documents).reshape(-1, 2)  # A and B of each row, in order of reading
    assert (labels == 1).any()
    assert (documents[labels == 1, 0] != documents[labels == 1, 1]).all()


def test_a_corpus_of_copies_is_refused_or_never_labelled_random(
    tmp_path: Path, tokenizer_path: Path, tiny: tuple[str, ...]
) -> None:
    """Ten documents with one text between them: there is no foreign text to pair with."""
    path = small_corpus(tmp_path / "copies", tokenizer_path, ["The captain sails. The ship follows."] * 10, 0.0)
    try:
        data = open_data(load("bert-tiny", tiny), path, None)
        labels = data.slices(0.0, {})[0][0].answers["next_sentence"]
    except UserError as error:
        assert path in str(error)
    else:
        assert not labels.any()


@settings(deadline=None, max_examples=150)
@given(corpora, st.integers(8, 40), st.integers(0, 1000), shares)
def test_order_is_asked_of_neighbours(corpus: Lengths, length: int, seed: int, short: float) -> None:
    everything = np.arange(len(corpus.bounds))
    rows = OrderPacker(corpus, length, short).plan(everything, np.random.default_rng(seed))  # type: ignore[arg-type]
    assert rows.segmented and (rows.lengths <= length).all()
    for number, swapped in enumerate(rows.answers["sentence_order"]):
        one, two = rows.row(number)
        a, b = (two, one) if swapped else (one, two)
        assert a[0] < a[1] <= b[0] < b[1], "A stands before B in the text"
        assert corpus.document_of(*a) == corpus.document_of(*b)


def test_half_of_the_rows_are_swapped() -> None:
    corpus = Lengths([[7] * 400] * 20)
    rows = OrderPacker(corpus, 64, 0.1).plan(np.arange(20), np.random.default_rng(0))  # type: ignore[arg-type]
    assert 0.45 < rows.answers["sentence_order"].mean() < 0.55


@settings(deadline=None, max_examples=200)
@given(corpora, st.integers(8, 40), st.integers(0, 1000), st.sampled_from([0.0, 0.1, 1.0]), st.booleans())
def test_rows_of_sentences_hold_every_token_once(
    corpus: Lengths, length: int, seed: int, short: float, across: bool
) -> None:
    everything = np.random.default_rng(seed).permutation(len(corpus.bounds))
    packer = SentencePacker(corpus, length, short, across)  # type: ignore[arg-type]
    rows = packer.plan(everything, np.random.default_rng(seed))
    assert not rows.segmented and not rows.answers
    assert (rows.lengths <= length).all() and (np.diff(rows.first) > 0).all()
    expected = np.concatenate([np.arange(corpus.bounds[d][0], corpus.bounds[d][-1]) for d in everything])
    assert np.array_equal(np.concatenate([np.arange(a, b) for a, b in rows.ranges]), expected)
    for number in range(len(rows)):
        documents = [corpus.document_of(a, b) for a, b in rows.row(number)]
        assert len(set(documents)) == len(documents), "a document has one [SEP] in a row"
        assert across or len(documents) == 1


def test_sentences_stay_whole_where_they_fit() -> None:
    corpus = Lengths([[5, 6, 7, 8, 9] * 30, [50, 3, 3], [4]])
    packer = SentencePacker(corpus, 32, 0.0, True)  # type: ignore[arg-type]
    rows = packer.plan(np.arange(3), np.random.default_rng(0))
    bounds = {int(b) for document in corpus.bounds for b in document}
    cuts = set(rows.ranges.flatten().tolist()) - bounds
    assert cuts and all(corpus.bounds[1][0] < cut < corpus.bounds[1][1] for cut in cuts), "only the long one is cut"
    assert rows.lengths.mean() > 24
