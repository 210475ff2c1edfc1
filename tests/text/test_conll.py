"""CoNLL files: sentences are read as they were written, and a truncated line rejects its sentence."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.errors import UserError, separate
from keel.text import conll
from keel.text.conll import Sentence

SAME_FOLDER = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n\0"), min_size=1, max_size=6)
TAGGED = st.tuples(
    WORD.filter(lambda w: not w.startswith(("-DOCSTART-", "\ufeff"))), st.sampled_from(["O", "B-X", "I-X"])
)


def read_conll(*given: Any, **options: Any) -> Any:
    return separate(conll.read_conll(*given, **options))


def write(path: Path, data: bytes | str) -> Path:
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def error(path: Path, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        read_conll(path, **options)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message


@SAME_FOLDER
@given(
    sentences=st.lists(st.lists(TAGGED, min_size=1, max_size=5), min_size=1, max_size=4),
    separator=st.sampled_from([" ", "\t"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    bom=st.booleans(),
    gz=st.booleans(),
)
def test_what_was_written_is_read_back(
    tmp_path: Path, sentences: list[list[tuple[str, str]]], separator: str, newline: str, bom: bool, gz: bool
) -> None:
    lines = [[separator.join((word, "NN", tag)) for word, tag in sentence] for sentence in sentences]
    data = ("\ufeff" if bom else "") + (2 * newline).join(newline.join(block) for block in lines)
    path = write(tmp_path / f"a.conll{'.gz' if gz else ''}", data)
    found, rejected = read_conll(path)
    assert not rejected
    assert [list(zip(s.words, s.tags, strict=True)) for s in found] == sentences
    starts = [1 + sum(len(block) + 1 for block in lines[:number]) for number in range(len(lines))]
    assert [s.line for s in found] == starts
    untagged, _ = read_conll(path, tags_needed=False)
    assert [s.words for s in untagged] == [s.words for s in found] and not any(s.tags for s in untagged)


def test_documents_and_many_blank_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.txt", "-DOCSTART- -X- O\n\nEU NNP B-ORG\nsays VB O\n\n \t\n-DOCSTART- -X- O\nYes UH O\n\n"
    )
    assert read_conll(path) == (
        [Sentence(str(path), 3, ["EU", "says"], ["B-ORG", "O"]), Sentence(str(path), 8, ["Yes"], ["O"])],
        [],
    )


def test_columns_may_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "1 EU NNP B-ORG x\n2 says VB O x\n")
    for tag in (4, -2):
        ((sentence,), _) = read_conll(path, word=2, tag=tag)
        assert sentence.words == ["EU", "says"] and sentence.tags == ["B-ORG", "O"]


def test_in_a_line_with_tabs_a_space_is_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "New York\tB-LOC\n\u3000\tO\nhas  O\n\u3000 O\n")
    ((sentence,), _) = read_conll(path)
    assert sentence.words == [
        "New York",
        "\u3000",
        "has",
        "\u3000",
    ]  # the ideographic space is a word in Chinese corpora


def test_a_bad_line_rejects_its_sentence(tmp_path: Path) -> None:
    data = b"EU NNP O\nsays VB O\n\nno tag O\nEU NNP\nhere\n\nfine JJ O\n\nbad \xff O\n\none two three O\n\nfine JJ O"
    path = write(tmp_path / "a.txt", data)
    sentences, rejected = read_conll(path)
    assert [(s.line, s.words) for s in sentences] == [(1, ["EU", "says"]), (8, ["fine"]), (14, ["fine"])]
    assert {one.file for one in rejected} == {str(path)}
    assert [(one.line, one.reason) for one in rejected] == [
        (5, "too few columns: 2, the tag is in column 3 (drops the sentence that begins in line 4)"),
        (10, "invalid UTF-8: byte 0xff in line 10; save the text as UTF-8 (drops the sentence that begins in line 10)"),
        (12, "too many columns: 4, most lines have 3 (drops the sentence that begins in line 12)"),
    ]
    sentences, rejected = read_conll(path, tag=3)  # counted from the front, more columns do no harm
    assert [one.line for one in rejected] == [5, 10]
    path = write(tmp_path / "b.txt", "a\tO\nb\t\n\n\tO\n")
    _, rejected = read_conll(path)
    assert [(one.line, one.reason.partition(" (")[0]) for one in rejected] == [
        (2, "empty: there is no tag in column 2"),
        (4, "empty: there is no word in column 1"),
    ]


def test_most_lines_without_tags_do_not_hide_the_tags(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\nb\n\nc\n\nd O\n")
    sentences, rejected = read_conll(path)
    assert [s.words for s in sentences] == [["d"]] and [one.line for one in rejected] == [1, 4]


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.txt", "one\nword\n\nper\nline\n")
    assert "single column" in error(plain) and "no tags" in error(plain)
    assert [s.words for s in read_conll(plain, tags_needed=False)[0]] == [["one", "word"], ["per", "line"]]
    path = write(tmp_path / "b.txt", "EU B-ORG\n")
    assert "2 (word) and -1 (tag) are the same column" in error(path, word=2)
    assert "its widest line has 2" in error(path, tag=4)
    assert "counted from 1" in error(path, tag=0)
    assert "no sentence" in error(write(tmp_path / "c.txt", "-DOCSTART- O\n\n"))
    assert "the file is empty" in error(write(tmp_path / "d.txt", ""))
    assert error(tmp_path / "b.tx").endswith("Did you mean 'b.txt'?")
    assert "not a file of columns" in error(write(tmp_path / "a.jsonl", "{}"))
    assert "UTF-16" in error(write(tmp_path / "e.txt", "EU O".encode("utf-16")))


def universal(*rows: tuple[str, str, str, str]) -> str:
    """Lines of a .conllu from (ID, FORM, UPOS, XPOS)."""
    return "".join(f"{i}\t{form}\t_\t{upos}\t{xpos}\tNumber=Sing\t0\troot\t_\t_\n" for i, form, upos, xpos in rows)


FIRST = (
    "# sent_id = 1\n# text = I don't see 10 000 # signs\n"
    + universal(("1", "I", "PRON", "PRP"), ("2-3", "don't", "_", "_"), ("2", "do", "AUX", "VBP"))
    + universal(("3", "n't", "PART", "RB"), ("3.1", "really", "ADV", "RB"), ("4", "10 000", "NUM", "CD"))
    + universal(("5", "#", "SYM", "#"))
)


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_universal_dependencies(tmp_path: Path, name: str, newline: str) -> None:
    """Comments, multiword tokens and empty nodes are not words, and columns have names."""
    data = FIRST + "\n# text = Yes\n" + universal(("1", "Yes", "INTJ", "UH")) + "\n"
    path = write(tmp_path / name, data.replace("\n", newline))
    (first, second), rejected = read_conll(path)
    assert not rejected and second == Sentence(str(path), 12, ["Yes"], ["INTJ"])
    assert first.line == 3 and first.words == ["I", "do", "n't", "10 000", "#"]
    assert first.tags == ["PRON", "AUX", "PART", "NUM", "SYM"]
    for xpos in ("xpos", "XPOS", "5", 5, -6):
        assert read_conll(path, tag=xpos)[0][0].tags == ["PRP", "VBP", "RB", "CD", "#"]
    assert read_conll(path, word="upos", tag="Feats")[0][1] == Sentence(str(path), 12, ["INTJ"], ["Number=Sing"])
    assert read_conll(path, tags_needed=False)[0][0].words == first.words


def test_bad_lines_and_columns_of_universal_dependencies(tmp_path: Path) -> None:
    good = universal(("1", "Yes", "INTJ", "UH"))
    bad = [good.replace("\t_\n", "\n"), good.replace("\n", "\tx\n"), good.replace("\t", " "), "x" + good]
    path = write(tmp_path / "a.conllu", "\n".join([good, *bad, good]))
    sentences, rejected = read_conll(path)
    assert [s.line for s in sentences] == [1, 11]
    assert [(one.line, one.reason.partition(" (")[0]) for one in rejected] == [
        (3, "too few columns: 9 separated by tabs, .conllu has 10"),
        (5, "too many columns: 11 separated by tabs, .conllu has 10"),
        (7, "too few columns: 1 separated by tabs, .conllu has 10"),
        (9, "not a word's number: 'x1' in the column ID"),
    ]
    assert error(path, tag="xpost").endswith("Did you mean 'XPOS'?")
    assert "4 (word) and 4 (tag) are the same column" in error(path, word="upos")
    assert "no line has the 10 columns" in error(write(tmp_path / "b.conllu", "EU\tB-ORG\n"))
    assert "no sentence" in error(write(tmp_path / "c.conllu", "# a comment\n"))
    assert "only the columns of a .conllu have names" in error(write(tmp_path / "d.conll", "EU O\n"), tag="upos")
