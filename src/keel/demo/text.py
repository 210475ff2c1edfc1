"""Real English prose that every machine with Python has: help topics, and the docstrings of installed packages.

In: the Python installation. Out: a .jsonl file, one document per module, with sentences kept and code left out; and
which characters of it were marked as code (``like this``).
Files are read, never imported: collecting text must not run anybody's code.
"""

from __future__ import annotations

import inspect
import json
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LARGEST_FILE = 2_000_000  # bytes; generated tables beyond this hold no prose
LARGEST_PACKAGE = 3_000_000  # characters taken from one package, so that none dominates
FEWEST_WORDS = 6  # in a paragraph that counts as prose
DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
MARKUP = re.compile(r":[a-z:+-]+:`~?([^`<]+)(?:<[^`>]*>)?`|``([^`]+)``|`([^`]+)`_?_?|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")
NOT_PROSE = re.compile(r"^\s*(>>>|\.\.\. |\.\. |[-=~^*#|+]{3,}|[@:$%])|[{}<>=|\\]{2,}|\w\(.*\)\s*->|https?://")
WORD = re.compile(r"[A-Za-z]+")
CODE = "\x01\x02"  # delimiters around code while a paragraph is being cleaned


@dataclass(frozen=True)
class Paragraph:
    text: str
    code: list[list[int]]  # [start, stop) of what was marked as code


def collect(out: Path) -> dict[str, int]:
    """Writes the documents and returns how many there are, and their size."""
    documents = characters = 0
    seen: set[str] = set()
    taken: Counter[str] = Counter()
    with out.open("w", encoding="utf-8") as file:
        for source, paragraphs in _sources():
            fresh = [p for p in paragraphs if p.text not in seen]
            seen.update(p.text for p in fresh)
            text = "\n".join(p.text for p in fresh)
            package = source.split("/")[0]
            taken[package] += len(text)
            if len(text) < 200 or taken[package] > LARGEST_PACKAGE:
                continue
            code = [p.code for p in fresh]
            file.write(json.dumps({"source": source, "text": text, "code": code}, ensure_ascii=False) + "\n")
            documents, characters = documents + 1, characters + len(text)
    return {"documents": documents, "characters": characters}


def _sources() -> Iterator[tuple[str, list[Paragraph]]]:
    for name, text in _help_topics().items():
        yield f"help topic {name}", prose(text)
    folders = dict.fromkeys(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.py")):
            inside = path.relative_to(folder).parts
            if "site-packages" in inside or "test" in inside or "tests" in inside or path.stat().st_size > LARGEST_FILE:
                continue
            yield "/".join(inside), [p for text in _docstrings(path) for p in prose(text)]


def _help_topics() -> dict[str, str]:
    """Python's own help texts (they are the data of `help('...')`, so importing the module runs no code)."""
    from pydoc_data.topics import topics

    return dict(topics)


def _docstrings(path: Path) -> Iterator[str]:
    """Triple-quoted strings that begin their line. (Parsing the files properly took 100 seconds instead of 10.)"""
    source = path.read_text(encoding="utf-8", errors="ignore")
    for match in DOCSTRING.finditer(source):
        if not source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" \trRuU"):
            yield inspect.cleandoc(match[1])


def prose(text: str) -> list[Paragraph]:
    """The paragraphs that read as sentences: no code, no tables, no parameter lists."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text):
        if NOT_PROSE.search(block):
            continue
        paragraph = _unmarked(" ".join(MARKUP.sub(_inner, block).split()))
        words = WORD.findall(paragraph.text)
        letters = sum(map(len, words))
        enough = len(words) >= FEWEST_WORDS and letters > 0.7 * len(paragraph.text.replace(" ", ""))
        if enough and paragraph.text[-1] in ".!?:":
            paragraphs.append(paragraph)
    return paragraphs


def _inner(match: re.Match[str]) -> str:
    """The text inside the markup; between CODE delimiters if it was code."""
    inner = next(group for group in match.groups() if group is not None).strip()
    return f"{CODE[0]}{inner}{CODE[1]}" if match[0].startswith(("``", ":")) else inner


def _unmarked(text: str) -> Paragraph:
    """The text without CODE delimiters, and the spans between them."""
    parts, code, length = [], [], 0
    for piece in re.split(f"([{CODE}])", text):
        if piece == CODE[0]:
            code.append([length, length])
        elif piece == CODE[1]:
            code[-1][1] = length
        else:
            parts.append(piece)
            length += len(piece)
    return Paragraph("".join(parts), code)
