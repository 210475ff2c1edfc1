"""The store returns what was written, however it was written, and refuses damaged files."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.corpus.store import Corpus, CorpusWriter, Encoded, held_out_threshold
from keel.errors import UserError
from keel.files import folders

Document = list[list[int]]  # sentences of ids
DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(0, 60000), min_size=1, max_size=6), min_size=1, max_size=5), min_size=1, max_size=12
)
SAME_FOLDER = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips fsync: many small files are written here, and none must survive a power failure."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def hash_of(document: Document) -> int:
    return hash(str(document)) % 2**64


def encoded(documents: list[Document], open_sentences: Document | None = None) -> Encoded:
    """Documents, followed by the beginning of one that does not end here."""
    sentences = [s for d in documents for s in d] + (open_sentences or [])
    ids = np.array([i for s in sentences for i in s], np.int64)
    return Encoded(
        ids.astype(np.uint16),
        ids % 3 == 0,
        np.cumsum([len(s) for s in sentences], dtype=np.int64),
        np.cumsum([len(d) for d in documents], dtype=np.int64),
        np.array([hash_of(d) for d in documents], np.uint64),
    )


def finish(writer: CorpusWriter, share: float = 0.0) -> Corpus:
    writer.finish(share, {"account": {}, "settings": {}, "tokenizer": "x"})
    folders.write_manifest(writer.folder, {})
    return Corpus.open(writer.folder)


def contents(corpus: Corpus) -> list[Document]:
    found = []
    for number in range(corpus.documents):
        bounds = corpus.sentence_bounds(number).tolist()
        found.append([corpus.ids(a, b).tolist() for a, b in pairwise(bounds)])
        starts = corpus.word_starts(bounds[0], bounds[-1])
        assert starts.dtype == bool
        assert starts.tolist() == [i % 3 == 0 for sentence in found[-1] for i in sentence]
    return found


def new_folder(tmp_path: Path) -> Path:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    return folder


@SAME_FOLDER
@given(DOCUMENTS, st.integers(1, 40), st.data())
def test_documents_are_read_as_written(
    tmp_path: Path, documents: list[Document], shard_tokens: int, data: st.DataObject
) -> None:
    """In batches of any size, documents split between any sentences, shards of any size."""
    writer = CorpusWriter(new_folder(tmp_path), 60000, shard_tokens)
    writer.open()
    portion: list[Document] = []
    carried: Document = []  # sentences of the open document that have been written
    for document in documents:
        rest = document
        if data.draw(st.booleans()):
            cut = data.draw(st.integers(0, len(document) - 1))
            writer.write(encoded(portion, document[:cut]))
            portion, carried, rest = [], document[:cut], document[cut:]
        portion.append(rest)
        if carried:
            one = encoded(portion)
            one.hashes[0] = hash_of(document)
            writer.write(one)
            portion, carried = [], []
    writer.write(encoded(portion, [[7, 7], [7]]))
    writer.drop()
    corpus = finish(writer)
    assert contents(corpus) == documents
    assert corpus.documents == len(documents) == len(corpus.document_tokens)
    assert corpus.document_tokens.tolist() == [sum(map(len, d)) for d in documents]
    assert corpus.tokens == corpus.document_tokens.sum()
    assert corpus.sentences == sum(map(len, documents))
    assert corpus.hashes.tolist() == [hash_of(d) for d in documents]
    for shard in corpus.info["shards"][:-1]:
        assert shard["tokens"] >= shard_tokens


@SAME_FOLDER
@given(DOCUMENTS, DOCUMENTS, st.integers(1, 40))
def test_resuming_from_a_sync_gives_the_same_files(
    tmp_path: Path, first: list[Document], second: list[Document], shard_tokens: int
) -> None:
    """Whatever was written after the last sync, complete or not, leaves no trace."""
    straight = CorpusWriter(new_folder(tmp_path), 60000, shard_tokens)
    straight.open()
    straight.write(encoded(first))
    straight.write(encoded(second))
    finish(straight)

    killed = CorpusWriter(new_folder(tmp_path), 60000, shard_tokens)
    killed.open()
    killed.reject("a", 0, 0, "empty")
    killed.write(encoded(first, [[1, 2, 3]]))
    journal = json.loads(json.dumps(killed.sync()))
    killed.reject("b", 0, 0, "empty")
    killed.write(encoded([[[5] * 50], [[6]]], [[8]]))
    killed.close()

    again = CorpusWriter(killed.folder, 60000, shard_tokens)
    again.open(journal)
    again.write(encoded(second))
    finish(again)
    for path in (straight.folder / "shards").iterdir():
        assert path.read_bytes() == (killed.folder / "shards" / path.name).read_bytes(), path.name
    assert len(list((straight.folder / "shards").iterdir())) == len(list((killed.folder / "shards").iterdir()))
    assert (killed.folder / "rejected.jsonl").read_text().count("\n") == 1


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50), st.floats(0, 1))
def test_held_out_is_some_but_not_all(hashes: list[int], share: float) -> None:
    array = np.array(hashes, np.uint64)
    held = array < np.uint64(held_out_threshold([array[:3], array[3:]], share))
    if share == 0 or len(set(hashes)) == 1:
        assert not held.any()
    else:
        assert 0 < held.sum() < len(hashes)


def test_held_out_share_is_kept() -> None:
    hashes = np.random.default_rng(0).integers(0, 2**64, 100_000, dtype=np.uint64)
    assert abs((hashes < np.uint64(held_out_threshold([hashes], 0.05))).mean() - 0.05) < 0.003


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65535, "uint16"), (65536, "uint32"), (119547, "uint32")])
def test_large_vocabularies_fit(tmp_path: Path, vocabulary: int, dtype: str) -> None:
    writer = CorpusWriter(tmp_path, vocabulary)
    writer.open()
    ids = np.array([0, vocabulary - 1])
    writer.write(Encoded(ids, ids == 0, np.array([2]), np.array([1]), np.array([5], np.uint64)))
    corpus = finish(writer)
    assert corpus.ids(0, 2).dtype == dtype and corpus.ids(0, 2).tolist() == ids.tolist()


def small_corpus(folder: Path) -> Path:
    writer = CorpusWriter(folder, 100)
    writer.open()
    writer.reject("a.txt", 3, 1, "empty")
    writer.write(encoded([[[1, 2], [3]], [[4, 5, 6]]]))
    finish(writer)
    return folder


@pytest.mark.parametrize("kind", ["ids", "words", "sentences", "documents", "hashes"])
@pytest.mark.parametrize("damage", ["flip", "short", "gone"])
def test_damage_is_refused_by_name(tmp_path: Path, kind: str, damage: str) -> None:
    path = small_corpus(tmp_path) / "shards" / f"00000.{kind}"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    if damage != "gone":
        path.write_bytes(data if damage == "flip" else data[:-1])
    with pytest.raises(UserError, match=rf"00000\.{kind}"):
        Corpus.open(tmp_path)
    if damage != "flip":
        with pytest.raises(UserError, match=rf"00000\.{kind}"):
            Corpus.open(tmp_path, verify=False)


def test_other_folders_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder; give a folder made by `keel corpus build`"):
        Corpus.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a corpus"):
        Corpus.open(tmp_path)
    small_corpus(tmp_path)
    info = json.loads((tmp_path / "corpus.json").read_text())
    (tmp_path / "corpus.json").write_text(json.dumps(info | {"format": 99}))
    with pytest.raises(UserError, match=r"corpus\.json: damaged"):
        Corpus.open(tmp_path)
    with pytest.raises(UserError, match="format 99, this Keel reads 1; build the corpus again"):
        Corpus.open(tmp_path, verify=False)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UserError, match="unfinished; run the same `keel corpus build` again"):
        Corpus.open(tmp_path)


def test_a_file_shorter_than_the_journal_says_is_refused(tmp_path: Path) -> None:
    writer = CorpusWriter(tmp_path, 100)
    writer.open()
    writer.write(encoded([[[1, 2], [3]]]))
    journal = writer.sync()
    writer.close()
    (tmp_path / "shards" / "00000.ids").write_bytes(b"")
    with pytest.raises(UserError, match=r"00000\.ids: shorter than"):
        CorpusWriter(tmp_path, 100).open(journal)
