"""Packers: properties of every plan, whatever the documents, and the shares of random and short rows.

A packer reads a corpus only through sentence bounds and content hashes, so here a corpus is a list of documents, each a
list of sentence lengths.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.catalog import find, names
from keel.corpus.row_plan import Packer, RowPlan
from keel.errors import UserError
from keel.packers.pairs import SPECIALS


class Lengths:
    """Documents as lists of sentence lengths, one after the other. Documents with equal `contents` are copies."""

    def __init__(self, documents: list[list[int]], contents: list[int] | None = None) -> None:
        starts = np.cumsum([0, *(sum(d) for d in documents)])
        self.bounds = [np.cumsum([start, *d]) for start, d in zip(starts, documents, strict=False)]
        self.hashes = np.array(contents or range(len(documents)), dtype=np.uint64)
        self.starts = starts

    def sentence_bounds(self, document: int) -> np.ndarray:
        return self.bounds[document]

    def document_of(self, start: int, stop: int) -> int:
        """The document that contains a token range, which must not cross into another."""
        document = int(np.searchsorted(self.starts, start, side="right")) - 1
        assert self.starts[document] <= start < stop <= self.starts[document + 1]
        return document


def make(name: str, corpus: Lengths, length: int, **options: float) -> Packer:
    kind = find("packers", name)
    packer: Packer = kind(kind.Config(**options), corpus, np.arange(len(corpus.bounds)), length)
    return packer


def plan(corpus: Lengths, length: int, seed: int = 0, short: float = 0.1, random: float = 0.5) -> RowPlan:
    packer = make("pairs", corpus, length, short_seq_prob=short, random_next_prob=random)
    return packer.plan(packer.pool, np.random.default_rng(seed))


def rows_of(pairs: RowPlan) -> list[tuple[int, int, int, int, int]]:
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


def test_the_folder_is_the_list_of_packers() -> None:
    assert names("packers") == ["doc_sentences", "full_sentences", "order", "pairs", "single_sentences"]
    assert all(issubclass(find("packers", name), Packer) for name in names("packers"))
    with pytest.raises(UserError, match=r"no packer called 'paris'\. Did you mean 'pairs'"):
        find("packers", "paris")


@pytest.mark.parametrize("name", names("packers"))
@given(corpora, st.integers(8, 70), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_every_packer_keeps_the_contract(name: str, corpus: Lengths, length: int, seed: int) -> None:
    """Rows within the length, ranges within their documents, and the same rows for the same seed."""
    packer = make(name, corpus, length)
    rows, again = (packer.plan(packer.pool, np.random.default_rng(seed)) for _ in range(2))
    assert (rows.lengths <= length).all() and (np.diff(rows.first) > 0).all()
    assert all(corpus.document_of(a, b) >= 0 for a, b in rows.ranges.tolist())
    assert all(len(answers) == len(rows) for answers in rows.answers.values())
    assert np.array_equal(rows.ranges, again.ranges) and np.array_equal(rows.first, again.first)
    assert all(np.array_equal(answers, again.answers[name]) for name, answers in rows.answers.items())


@given(corpora, st.integers(8, 70), st.integers(0, 2**32), shares, shares)
@settings(max_examples=300, deadline=None)
def test_pairs_read_each_document_once(
    corpus: Lengths, length: int, seed: int, short: float, random_next_prob: float
) -> None:
    longest = max(int(np.diff(b).max()) for b in corpus.bounds)
    own: list[tuple[int, int]] = []
    full = 0
    for a_start, a_stop, b_start, b_stop, is_random in rows_of(plan(corpus, length, seed, short, random_next_prob)):
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
            assert ((between >= a_stop) & (between <= b_start)).any(), "A sentence ends between A and B"
    # BERT's procedure reads each document once: A and a consecutive B are text of the document, in order and never
    # twice. Only truncation loses tokens, at most one sentence's worth per full row.
    own.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(own))
    lost = int(corpus.starts[-1]) - sum(stop - start for start, stop in own)
    assert 0 <= lost <= full * longest


@given(corpora, st.integers(0, 2**32), shares)
@settings(max_examples=100, deadline=None)
def test_rows_long_enough_lose_nothing(corpus: Lengths, seed: int, random_next_prob: float) -> None:
    """Where nothing is truncated, each token occurs exactly once per epoch outside random segments."""
    pairs = plan(corpus, 2 * int(corpus.starts[-1]) + SPECIALS, seed, 0.0, random_next_prob)
    own = [(a, b) for a, b, _, _, _ in rows_of(pairs)] + [(c, d) for _, _, c, d, r in rows_of(pairs) if not r]
    covered = np.concatenate([np.arange(start, stop) for start, stop in own])
    assert sorted(covered.tolist()) == list(range(int(corpus.starts[-1])))


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
    """Long documents of short sentences, where rows of one sentence, which must be random, are rare."""
    pairs = plan(many(2, 300, 40, 80), 128, random=wanted)
    assert abs(float(pairs.answers["next_sentence"].mean()) - wanted) < 0.04


def test_one_row_in_ten_has_a_shorter_target() -> None:
    """Sentences of one token fill every target exactly, so a shorter row had a lower target or ended a document."""
    corpus = Lengths([[1] * 4000] * 30, list(range(30)))
    pairs = plan(corpus, 64, random=0.0)
    short = (pairs.lengths < 64).sum() - 30
    assert 0.08 < short / len(pairs) < 0.12
    assert ((plan(corpus, 64, random=0.0, short=0.0).lengths < 64).sum()) <= 30


def test_truncation_takes_from_the_longer_segment_and_from_both_ends() -> None:
    """A sentence longer than the row loses tokens at its start and at its end."""
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
    """A text that is nearly every document (a licence, a notice) must not be labelled as random after itself."""
    corpus = Lengths([[4, 4, 4]] * 400, [7] * 399 + [8])
    for a_start, a_stop, b_start, b_stop, is_random in rows_of(plan(corpus, 16)):
        if is_random:
            a, b = corpus.document_of(a_start, a_stop), corpus.document_of(b_start, b_stop)
            assert corpus.hashes[a] != corpus.hashes[b]


class Reads:
    """Records which documents of a corpus are read, through `Corpus.ids`."""

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
    from keel.pretraining.data import open_data
    from keel.recipe import load

    data = open_data(load("bert-tiny", tiny), str(corpus_path), None)
    reads = Reads(data.corpus, monkeypatch)
    cursors: dict[str, Any] = {}
    while not cursors or cursors["main"].epoch < 2:
        _, cursors = data.micro_batches(0.0, cursors)
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
    """A small corpus holds out one document. Evaluation must not label its own sentences as random after it."""
    texts = [f"The captain number {i} sails. The ship follows him. The mast is broken. A gull sings." for i in range(8)]
    path = small_corpus(tmp_path / "one", tokenizer_path, texts, held_out=0.0001)
    from keel.corpus.store import Corpus
    from keel.pretraining.data import open_data
    from keel.recipe import load

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
    """Ten copies of one document: there is no other text to pair it with."""
    from keel.pretraining.data import open_data
    from keel.recipe import load

    path = small_corpus(tmp_path / "copies", tokenizer_path, ["The captain sails. The ship follows."] * 10, 0.0)
    try:
        data = open_data(load("bert-tiny", tiny), path, None)
        labels = data.micro_batches(0.0, {})[0][0].answers["next_sentence"]
    except UserError as error:
        assert path in str(error)
    else:
        assert not labels.any()


@settings(deadline=None, max_examples=150)
@given(corpora, st.integers(8, 40), st.integers(0, 1000), shares)
def test_order_pairs_are_consecutive(corpus: Lengths, length: int, seed: int, short: float) -> None:
    packer = make("order", corpus, length, short_seq_prob=short)
    rows = packer.plan(packer.pool, np.random.default_rng(seed))
    assert rows.segmented and (rows.lengths <= length).all()
    for number, swapped in enumerate(rows.answers["sentence_order"]):
        one, two = rows.row(number)
        a, b = (two, one) if swapped else (one, two)
        assert a[0] < a[1] <= b[0] < b[1], "A is before B in the text"
        assert corpus.document_of(*a) == corpus.document_of(*b)


def test_half_of_the_rows_are_swapped() -> None:
    corpus = Lengths([[7] * 400] * 20)
    rows = make("order", corpus, 64).plan(np.arange(20), np.random.default_rng(0))
    assert 0.45 < rows.answers["sentence_order"].mean() < 0.55


@settings(deadline=None, max_examples=200)
@given(
    corpora,
    st.integers(8, 40),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from(["full-sentences", "doc-sentences"]),
)
def test_rows_of_sentences_contain_every_token_once(
    corpus: Lengths, length: int, seed: int, short: float, name: str
) -> None:
    everything = np.random.default_rng(seed).permutation(len(corpus.bounds))
    rows = make(name, corpus, length, short_seq_prob=short).plan(everything, np.random.default_rng(seed))
    assert not rows.segmented and not rows.answers
    assert (rows.lengths <= length).all() and (np.diff(rows.first) > 0).all()
    expected = np.concatenate([np.arange(corpus.bounds[d][0], corpus.bounds[d][-1]) for d in everything])
    assert np.array_equal(np.concatenate([np.arange(a, b) for a, b in rows.ranges]), expected)
    for number in range(len(rows)):
        documents = [corpus.document_of(a, b) for a, b in rows.row(number)]
        assert len(set(documents)) == len(documents), "a document has one [SEP] in a row"
        assert name == "full-sentences" or len(documents) == 1


def test_sentences_stay_whole_where_they_fit() -> None:
    corpus = Lengths([[5, 6, 7, 8, 9] * 30, [50, 3, 3], [4]])
    rows = make("full-sentences", corpus, 32, short_seq_prob=0.0).plan(np.arange(3), np.random.default_rng(0))
    bounds = {int(b) for document in corpus.bounds for b in document}
    cuts = set(rows.ranges.flatten().tolist()) - bounds
    assert cuts and all(corpus.bounds[1][0] < cut < corpus.bounds[1][1] for cut in cuts), "only the long one is cut"
    assert rows.lengths.mean() > 24


@settings(deadline=None, max_examples=100)
@given(corpora, st.integers(8, 40), st.integers(0, 1000))
def test_single_sentences_are_rows_cut_to_the_length(corpus: Lengths, length: int, seed: int) -> None:
    """Every sentence is one row, in order; a long one keeps its first tokens. No random number is used."""
    everything = np.random.default_rng(seed).permutation(len(corpus.bounds))
    random = np.random.default_rng(seed)
    before = random.bit_generator.state
    rows = make("single-sentences", corpus, length).plan(everything, random)
    assert random.bit_generator.state == before
    assert not rows.segmented and not rows.answers
    sentences = [(int(a), int(b)) for document in everything for a, b in pairwise(corpus.bounds[document])]
    assert [rows.row(number) for number in range(len(rows))] == [[(a, min(b, a + length - 2))] for a, b in sentences]
    assert rows.lengths.tolist() == [min(b - a + 2, length) for a, b in sentences]


def test_no_documents_are_no_single_sentences() -> None:
    rows = make("single-sentences", Lengths([[3]]), 16).plan(np.zeros(0, np.int64), np.random.default_rng(0))
    assert len(rows) == 0 and len(rows.lengths) == 0
