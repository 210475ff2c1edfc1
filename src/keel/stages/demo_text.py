"""Real English prose that every machine with Python has: help topics, and the docstrings of installed packages.

In: the Python installation. Out: a .jsonl file, one document per module, with sentences kept and code left out.
Files are read, never imported: collecting text must not run anybody's code.
"""

from __future__ import annotations

import inspect
import json
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LARGEST_FILE = 2_000_000  # bytes; generated tables beyond this hold no prose
LARGEST_PACKAGE = 3_000_000  # characters taken from one package, so that no single voice drowns the others
FEWEST_WORDS = 6  # in a paragraph that counts as prose
DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
MARKUP = re.compile(r":[a-z:+-]+:`~?([^`<]+)(?:<[^`>]*>)?`|``([^`]+)``|`([^`]+)`_?_?|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")
NOT_PROSE = re.compile(r"^\s*(>>>|\.\.\. |\.\. |[-=~^*#|+]{3,}|[@:$%])|[{}<>=|\\]{2,}|\w\(.*\)\s*->|https?://")
WORD = re.compile(r"[A-Za-z]+")


def collect(out: Path) -> dict[str, int]:
    """Writes the documents and returns how many there are, and their size."""
    documents = characters = 0
    seen: set[str] = set()
    taken: Counter[str] = Counter()
    with out.open("w", encoding="utf-8") as file:
        for source, paragraphs in _sources():
            fresh = [p for p in paragraphs if p not in seen]
            seen.update(fresh)
            text = "\n".join(fresh)
            package = source.split("/")[0]
            taken[package] += len(text)
            if len(text) < 200 or taken[package] > LARGEST_PACKAGE:
                continue
            file.write(json.dumps({"source": source, "text": text}, ensure_ascii=False) + "\n")
            documents, characters = documents + 1, characters + len(text)
    return {"documents": documents, "characters": characters}


def _sources() -> Iterator[tuple[str, list[str]]]:
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


def prose(text: str) -> list[str]:
    """The paragraphs that read as sentences: no code, no tables, no parameter lists."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text):
        if NOT_PROSE.search(block):
            continue
        joined = " ".join(MARKUP.sub(_inner, block).split())
        words = WORD.findall(joined)
        letters = sum(map(len, words))
        if len(words) >= FEWEST_WORDS and letters > 0.7 * len(joined.replace(" ", "")) and joined[-1] in ".!?:":
            paragraphs.append(joined)
    return paragraphs


def _inner(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()
