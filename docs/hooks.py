"""What `mkdocs build` does beside mkdocs.yml, so that the same pages read well in the repository and as a site.

- The home page is the README.
- Links out of docs/ become the path of the file, as code: a site has no source tree to link to.
- Links to a page's other language are left out: the header of the site switches languages.
- A named code block (```` ```tsv train.tsv ````) shows its name as a title.
- A line break between two Chinese characters is none: a browser would show a space.
- Search ranks guides above the reference, and records of how Keel was made last.
- Chinese is cut into words for the search index, by rjieba; the browser cuts a query by the words of the index.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rjieba
from material.plugins.search import plugin as search

ROOT = Path(__file__).parent.parent
HOME = {"index.md": "README.md", "index.zh-CN.md": "README.zh-CN.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHINESE = r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]"  # characters and punctuation
BREAK = re.compile(rf"(?<={CHINESE})\n *(?={CHINESE})")
LANGUAGES = ("English", "中文", "简体中文")
RANKS = {"guide/": 3.0, "index": 2.0, "decisions/": 0.5, "notebook": 0.5}  # of search results, by the page's path
# Words that rjieba would cut into parts.
TERMS = ("预训练", "词向量", "子词", "整词", "掩码", "微调", "池化", "语料库", "分词器", "检查点", "续训")


def on_config(config: Any) -> None:
    """Gives the search plug-in our word segmentation in place of jieba's."""
    words = rjieba.Jieba()
    for term in TERMS:
        words.add_word(term, 100_000, "n")
    search.jieba = SimpleNamespace(cut=lambda text: words.cut(text.decode("utf-8")))


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page as the site shows it."""
    for path, rank in RANKS.items():
        if page.file.src_uri.startswith(path):
            page.meta["search"] = {"boost": rank}
    source = HOME.get(page.file.src_uri)
    if source:
        markdown = (ROOT / source).read_text(encoding="utf-8")
    return for_site(markdown, source or f"docs/{page.file.src_uri}", page.file.src_uri)


def for_site(markdown: str, source: str, page: str) -> str:
    """Rewrites the text of the file `source` (from the root) for the page at `page` (from docs/)."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [prose(markdown[end : fence.start()], source, page), named_block(fence)]
        end = fence.end()
    return "".join(parts) + prose(markdown[end:], source, page)


def named_block(fence: re.Match[str]) -> str:
    language, name, body = fence.groups()
    return f'```{language} title="{name}"\n{body}```' if name else fence[0]


def prose(text: str, source: str, page: str) -> str:
    def rewrite(link: re.Match[str]) -> str:
        image, shown, target = link.groups()
        if shown in LANGUAGES and target.endswith(".md"):
            return ""
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not path.startswith("docs/"):
            return f"`{path}`" if path.endswith(shown) else f"{shown} (`{path}`)"
        if (ROOT / path).is_dir():
            path += "/README.md"
        path = posixpath.relpath(path.removeprefix("docs/"), posixpath.dirname(page) or ".")
        return f"{image}[{shown}]({path}{'#' + anchor if anchor else ''})"

    return BREAK.sub("", LINK.sub(rewrite, text))
