"""Reads tagged sentences in columns: CoNLL-2003 and similar formats, also .gz.

In: a file with one word per line, its tag in another column, and blank lines between sentences. Out: the sentences, and
a `Rejected` for every sentence that cannot be used.

Notable choices
- Columns are separated by tabs in a line that contains a tab, otherwise by spaces; other white space is text. The
  ideographic space is a word in many Chinese corpora.
- A column counted from the end refers to the most common width of the file, and lines of another width are rejected:
  otherwise the last column of a truncated line would be taken for its tag.
- One bad line rejects its sentence: without that word, the tags of its neighbours would mean something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keel.errors import UserError
from keel.text.tables import Rejected, check_file, kind_of, not_unicode, read_lines, separate

OTHER_FORMATS = (".csv", ".json", ".jsonl")  # CoNLL files have any other suffix: .txt, .conll, .bmes, .testa
DOCUMENT = "-DOCSTART-"

_BLANK = " \t\r"


@dataclass(frozen=True, slots=True)
class Sentence:
    file: str
    line: int  # line of its first word, counted from 1
    words: list[str]
    tags: list[str]  # as many as words, or none at all


def read_conll(
    path: str | Path, word: int = 1, tag: int = -1, *, tags_needed: bool = True
) -> tuple[list[Sentence], list[Rejected]]:
    """The sentences of a file. Columns are counted from 1, or from the end: -1 is the last."""
    path = Path(path)
    check_file(path)
    if kind_of(path) in OTHER_FORMATS:
        raise UserError(f"{path}: not a file of columns; tags are read from one word per line, with its tag after it")
    wanted = {"word": word, "tag": tag} if tags_needed else {"word": word}
    if 0 in wanted.values():
        raise UserError(f"{path}: column 0; columns are counted from 1, and from the end from -1")
    lines = read_lines(path)
    places, width = _places(path, lines, wanted)
    return separate(_read(str(path), sentence_lines, places, width) for sentence_lines in _sentences(lines))


def _columns(line: str) -> list[str]:
    if "\t" in line:
        return [column.strip(_BLANK) for column in line.split("\t")]
    return [column for column in line.strip(_BLANK).split(" ") if column]


def _sentences(lines: list[str]) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each sentence; sentences are separated by blank lines."""
    held: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if line.strip(_BLANK) and not line.startswith(DOCUMENT):
            held.append((number, line))
        elif held:
            yield held
            held = []
    if held:
        yield held


def _places(path: Path, lines: list[str], wanted: dict[str, int]) -> tuple[dict[str, int], int]:
    """The columns counted from 1, and the width that lines must have; 0 if no column was counted from the end."""
    widths = Counter(len(_columns(line)) for sentence in _sentences(lines) for _, line in sentence)
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


def _read(file: str, lines: list[tuple[int, str]], places: dict[str, int], width: int) -> Sentence | Rejected:
    values: dict[str, list[str]] = {"word": [], "tag": []}
    first = lines[0][0]
    for number, line in lines:
        columns = _columns(line)
        reason = not_unicode(line, number) or _fault(columns, places, width)
        if reason:
            return Rejected(file, number, f"{reason} (drops the sentence that begins in line {first})")
        for role, place in places.items():
            values[role].append(columns[place - 1])
    return Sentence(file, first, values["word"], values["tag"])


def _fault(columns: list[str], places: dict[str, int], width: int) -> str:
    for role, place in places.items():
        if place > len(columns):
            return f"too few columns: {len(columns)}, the {role} is in column {place}"
        if not columns[place - 1]:
            return f"empty: there is no {role} in column {place}"
    if width and len(columns) != width:
        return f"too {'few' if len(columns) < width else 'many'} columns: {len(columns)}, most lines have {width}"
    return ""
