"""The pages of the site as tests read them: their code blocks, and the shell commands in these."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: (\S[^\n]*\S) -->\s*\Z")
CODE = ("sh", "console", "python")
CHINESE = ".zh-CN"
SERVED = ("guide/serving.md", "guide/clients.md")  # pages that ask a server (tests/serving/test_guides.py)


class Block(NamedTuple):
    language: str
    name: str  # of the file that it shows; empty: none
    body: str
    not_run: str  # the reason why no test runs it; empty: one does


class Command(NamedTuple):
    words: list[str]
    stdin: str  # the file after <, or empty
    stdout: str  # the file after >, or empty


def site_pages() -> list[Path]:
    """The home pages, and all of docs/ but the place-holders that they replace."""
    readmes = [ROOT / "README.md", ROOT / f"README{CHINESE}.md"]
    return readmes + sorted(path for path in DOCS.rglob("*.md") if path.name.split(".")[0] != "index")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def twin_of(page: Path) -> Path:
    """The Chinese page beside an English one."""
    return page.with_name(f"{page.stem}{CHINESE}.md")


def english_of(page: Path) -> Path:
    """The English page beside a Chinese one."""
    return page.with_name(page.name.replace(CHINESE, ""))


def is_chinese(page: Path) -> bool:
    return page.stem.endswith(CHINESE)


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in FENCE.finditer(text):
        marker = NOT_RUN.search(text[: fence.start()])
        found.append(Block(fence[1], fence[2] or "", fence[3], marker[1] if marker else ""))
    return found


def code(block: Block) -> object:
    """What a block does, whatever its comments say."""
    if block.name or block.language not in CODE:
        return block.name, block.body
    return ast.dump(ast.parse(block.body)) if block.language == "python" else list(commands(block))


def to_run(page: Path) -> list[Block]:
    """The blocks that are to be executed, or written to a file, in order."""
    return [block for block in blocks(page) if block.name or (block.language in CODE and not block.not_run)]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a shell block; of a console block, those after a prompt."""
    for line in block.body.replace("\\\n", " ").splitlines():
        if block.language == "console" and not line.startswith("$ "):
            continue
        words = shlex.split(line.removeprefix("$ "), comments=True)
        files = {"<": "", ">": ""}
        while len(words) > 2 and words[-2] in files:
            files[words[-2]] = words[-1]
            words = words[:-2]
        if words:
            yield Command(words, files["<"], files[">"])
