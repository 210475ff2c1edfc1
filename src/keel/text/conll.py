"""Reads tagged sentences in columns: CoNLL-2003 and similar formats, and CoNLL-U; also .gz.

In: a file with one word per line, its tag in another column, and blank lines between sentences. Out: the sentences, and
a `Rejected` for every sentence that cannot be used.

.conllu  as Universal Dependencies publishes it (universaldependencies.org/format.html): ten columns with names,
         separated by tabs. `#` begins a comment. Multiword tokens (3-4) and empty nodes (5.1) are not words: the words
         of a multiword token follow it in lines of their own
others   columns are counted. They are separated by tabs in a line that contains a tab, otherwise by spaces; other white
         space is text. The ideographic space is a word in many Chinese corpora

Notable choices
- A column counted from the end refers to the most common width of the file, and lines of another width are rejected:
  otherwise the last column of a truncated line would be taken for its tag.
- One bad line rejects its sentence: without that word, the tags of its neighbours would mean something else.
- The file is read twice, for the widths of its lines and for its sentences, and never held in memory. A sentence of
  more than RECORD_BYTES is rejected: the blank lines are missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from keel.errors import Rejected, UserError, suggest
from keel.text.rows import RECORD_BYTES
from keel.text.tables import check_file, kind_of, not_unicode, read_lines

OTHER_FORMATS = (".csv", ".json", ".jsonl")  # CoNLL files have any other suffix: .txt, .conll, .bmes, .testa
DOCUMENT = "-DOCSTART-"
UNIVERSAL = ".conllu"
UNIVERSAL_COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")

_BLANK = " \t\r"
_WORD_NUMBER = re.compile("[0-9]+")
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+\t")


@dataclass(frozen=True, slots=True)
class Sentence:
    file: str
    line: int  # line of its first word, counted from 1
    words: list[str]
    tags: list[str]  # as many as words, or none at all


def read_conll(
    path: str | Path, word: int | str | None = None, tag: int | str | None = None, *, tags_needed: bool = True
) -> Iterator[Sentence | Rejected]:
    """The sentences of a file. Columns are counted from 1, or from the end: -1 is the last; in a .conllu they may be
    names, in any case. Default: the first and the last; in a .conllu FORM and UPOS."""
    path = Path(path)
    check_file(path)
    if kind_of(path) in OTHER_FORMATS:
        raise UserError(f"{path}: not a file of columns; tags are read from one word per line, with its tag after it")
    universal = kind_of(path) == UNIVERSAL
    wanted = {"word": _number(path, "word", word, "FORM" if universal else 1)}
    if tags_needed:
        wanted["tag"] = _number(path, "tag", tag, "UPOS" if universal else -1)
    if 0 in wanted.values():
        raise UserError(f"{path}: column 0; columns are counted from 1, and from the end from -1")
    if universal:
        _check_universal(path)
    places, width = _places(path, wanted)
    check = _universal_fault if universal else lambda line: ""
    return (_read(str(path), sentence, places, width, check) for sentence in _sentences(path))


def _number(path: Path, role: str, column: int | str | None, default: int | str) -> int:
    """A column as a number."""
    column = default if column is None or column == "" else column
    if isinstance(column, int):
        return column
    if re.fullmatch(r"-?[0-9]{1,6}", column):
        return int(column)
    option = "--text" if role == "word" else "--label"
    if kind_of(path) != UNIVERSAL:
        raise UserError(
            f"{path}: column '{column}', wanted as {role}; only the columns of a {UNIVERSAL} have names, so give"
            f" {option} a number"
        )
    if column.upper() not in UNIVERSAL_COLUMNS:
        raise UserError(
            f"{path}: {UNIVERSAL} has no column '{column}', wanted as {role}; choose with {option}."
            f"{suggest(column.upper(), UNIVERSAL_COLUMNS)}"
        )
    return UNIVERSAL_COLUMNS.index(column.upper()) + 1


def _check_universal(path: Path) -> None:
    """Raises if no line of a .conllu has ten columns."""
    words = (line for line in read_lines(path) if line.strip(_BLANK) and not line.startswith("#"))
    widths = Counter(line.count("\t") + 1 for line in words)
    if widths and len(UNIVERSAL_COLUMNS) not in widths:
        raise UserError(
            f"{path}: no line has the {len(UNIVERSAL_COLUMNS)} columns of {UNIVERSAL}, separated by tabs; most have"
            f" {widths.most_common(1)[0][0]}. Rename a file with other columns to .conll"
        )


def _columns(line: str) -> list[str]:
    if "\t" in line:
        return [column.strip(_BLANK) for column in line.split("\t")]
    return [column for column in line.strip(_BLANK).split(" ") if column]


def _words(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines that hold a word, and an empty one between sentences."""
    universal = kind_of(path) == UNIVERSAL
    for number, line in enumerate(read_lines(path), 1):
        if universal and (line.startswith("#") or _NO_WORD.match(line)):
            continue
        yield number, line if line.strip(_BLANK) and not line.startswith(DOCUMENT) else ""


def _sentences(path: Path) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each sentence; of one that is too long only the first and an empty one."""
    held, size = list[tuple[int, str]](), 0
    for number, line in _words(path):
        if line:
            size += len(line)
            held.append((number, line))
            if size > RECORD_BYTES:
                held[1:] = [(number, "")]
        elif held:
            yield held
            held, size = [], 0
    if held:
        yield held


def _places(path: Path, wanted: dict[str, int]) -> tuple[dict[str, int], int]:
    """The columns counted from 1, and the width that lines must have; 0 if no column was counted from the end."""
    widths = Counter(len(_columns(line)) for _, line in _words(path) if line)
    if not widths:
        raise UserError(f"{path}: there is no sentence in this file; give one with a word in each line")
    if "tag" in wanted and set(widths) == {1}:
        raise UserError(f"{path}: every line has a single column, so there are no tags; give a tag after each word")
    least = max(len(wanted), *map(abs, wanted.values()))
    enough = {width: count for width, count in widths.items() if width >= least}
    if not enough:
        raise UserError(f"{path}: columns {_listed(wanted)} are needed; its widest line has {max(widths)}")
    usual = max(enough, key=lambda width: (enough[width], width))
    places = {role: column if column > 0 else usual + 1 + column for role, column in wanted.items()}
    if len(set(places.values())) < len(places):
        raise UserError(f"{path}: {_listed(wanted)} are the same column; give word and tag a column each")
    return places, usual if min(wanted.values()) < 0 else 0


def _listed(wanted: dict[str, int]) -> str:
    return " and ".join(f"{column} ({role})" for role, column in wanted.items())


def _read(
    file: str, lines: list[tuple[int, str]], places: dict[str, int], width: int, check: Callable[[str], str]
) -> Sentence | Rejected:
    values: dict[str, list[str]] = {"word": [], "tag": []}
    first = lines[0][0]
    if not lines[-1][1]:
        return Rejected(
            file, first, f"a sentence of more than {RECORD_BYTES >> 20} MB; put blank lines between sentences"
        )
    for number, line in lines:
        columns = _columns(line)
        reason = not_unicode(line, number) or check(line) or _fault(columns, places, width)
        if reason:
            return Rejected(file, number, f"{reason} (drops the sentence that begins in line {first})")
        for role, place in places.items():
            values[role].append(columns[place - 1])
    return Sentence(file, first, values["word"], values["tag"])


def _universal_fault(line: str) -> str:
    """Why a line of a .conllu is not a word; empty if it is one."""
    columns, needed = line.split("\t"), len(UNIVERSAL_COLUMNS)
    if len(columns) != needed:
        kind = "few" if len(columns) < needed else "many"
        return f"too {kind} columns: {len(columns)} separated by tabs, {UNIVERSAL} has {needed}"
    return "" if _WORD_NUMBER.fullmatch(columns[0]) else f"not a word's number: {columns[0]!r:.40} in the column ID"


def _fault(columns: list[str], places: dict[str, int], width: int) -> str:
    for role, place in places.items():
        if place > len(columns):
            return f"too few columns: {len(columns)}, the {role} is in column {place}"
        if not columns[place - 1]:
            return f"empty: there is no {role} in column {place}"
    if width and len(columns) != width:
        return f"too {'few' if len(columns) < width else 'many'} columns: {len(columns)}, most lines have {width}"
    return ""
