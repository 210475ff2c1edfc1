"""Files of word vectors: read as gensim reads them, or refused with the position of the error."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from keel.errors import UserError
from keel.text.vector_files import read_vectors, write_vectors

WORD = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=8)
VALUE = st.floats(-1e6, 1e6, width=32)


@pytest.mark.parametrize("binary", [False, True])
@settings(max_examples=60, deadline=None)
@given(words=st.lists(WORD, min_size=1, max_size=6, unique=True), width=st.integers(1, 5), data=st.data())
def test_what_is_written_is_read(
    binary: bool, words: list[str], width: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any words, any finite values. With few values, text and floats are the hardest to distinguish."""
    vectors = data.draw(arrays(np.float32, (len(words), width), elements=VALUE))
    if binary and all(0x20 <= byte < 0x7F or byte in b"\t\r\n" for byte in vectors[0].tobytes()):
        return  # floats whose bytes are printable cannot be distinguished from text
    path = tmp_path_factory.mktemp("v") / data.draw(st.sampled_from(["vectors", "vectors.gz"]))
    write_vectors(path, words, vectors, binary, packed=path.suffix == ".gz")
    found = read_vectors(path)
    assert found.words == words and np.array_equal(found.vectors, vectors) and found.doubled == 0


def test_the_variants_of_other_programs_are_read_as_gensim_reads_them(tmp_path: Path) -> None:
    """word2vec.c and fastText write a space before the newline; word2vec.c writes a newline after binary vectors."""
    from gensim.models import KeyedVectors

    floats = [np.array(row, "<f4").tobytes() for row in ([1, 2.5], [-3, 4e-3])]
    ways = {
        "fasttext": b"2 2\nkeel 1 2.5 \nmast -3 4e-3 \n",
        "windows": b"2 2\r\nkeel 1 2.5\r\nmast -3 4e-3\r\n",
        "short-values": "2 2\nüber 1 2.5\n龙骨 -3 4e-3\n".encode(),
        "no-last-newline": b"2 2\nkeel 1 2.5\nmast -3 4e-3",
        "word2vec-c": b"2 2\nkeel " + floats[0] + b"\nmast " + floats[1] + b"\n",
        "gensim": b"2 2\nkeel " + floats[0] + b"mast " + floats[1],
    }
    for name, content in ways.items():
        path = tmp_path / name
        path.write_bytes(content)
        theirs = KeyedVectors.load_word2vec_format(str(path), binary=b"2.5" not in content)
        found = read_vectors(path)
        assert found.words == theirs.index_to_key and len(found.words) == 2, name
        assert np.array_equal(found.vectors, theirs.vectors), name
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        assert np.array_equal(read_vectors(tmp_path / f"{name}.gz").vectors, theirs.vectors)


def test_the_first_vector_of_a_repeated_word_is_kept(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("3 1\nkeel 1\nmast 2\nkeel 3\n")
    found = read_vectors(tmp_path / "v")
    assert found.words == ["keel", "mast"] and found.vectors.tolist() == [[1], [2]] and found.doubled == 1


ONES = np.ones(3, "<f4").tobytes()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "does not begin with the number of words"),
        (b"keel 1 2 3\n", "does not begin with the number of words"),
        (b"2 0\nkeel\nmast\n", "line 1: 2 words of 0 values"),
        (b"2 3\nkeel 1 2\nmast 1 2 3\n", "line 2: expected a word and 3 numbers, as line 1 says, but found 2"),
        (b"2 3\nkeel 1 2 3 4\nmast 1 2 3\n", "line 2: expected a word and 3 numbers, as line 1 says, but found 4"),
        (b"2 3\nkeel 1 x 3\nmast 1 2 3\n", "line 2: expected a word and 3 numbers"),
        (b"2 3\nkeel 1 2 3\n\nmast 1 2 3\n", "line 3: no word"),
        (b"2 3\nkeel 1.123 2.123 3.123\n", "line 3: no word, though line 1 declares 2 of them; 1 were read"),
        (b"1 3\nkeel 1 2 3\nmast 1 2 3\n", "continues after the 1 words"),
        (b"900000000 300\nkeel 1 2 3\n", "too short for the 900,000,000 words of 300 values"),
        (b"2 3\nkeel 1 2 3\nmast 1 nan 3\n", "line 3: 'mast' has values that are not numbers"),
        (b"1 3\nkeel 1 2 1e300\n", "line 2: 'keel' has values that are not numbers"),
        (b"1 3\nkiel\xe9 1 2 3\n", "line 2: the word is not UTF-8"),
        (b"2 3\nkeel " + ONES + b"\nma", "ends within word 2 of 2"),
        (b"2 2\nkeel " + ONES + b"\nmast " + ONES + b"\n", "word 2 of 2 is not a word; does each have 2 values"),
        (b"1 3\nkeel " + ONES + b"\nmast " + ONES, "continues after the 1 words"),
        (b"1 3\nkeel " + np.array([1, np.nan, 1], "<f4").tobytes(), "word 1 of 1, 'keel', has values that are not"),
    ],
)
def test_inconsistent_files_are_refused_with_the_position(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(UserError) as refused:
        read_vectors(tmp_path / "v")
    assert expected in str(refused.value)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "v.gz").write_bytes(gzip.compress(b"1 1\nkeel 1\n" * 50)[:-20])
    with pytest.raises(UserError, match=r"v\.gz: damaged gzip"):
        read_vectors(tmp_path / "v.gz")
