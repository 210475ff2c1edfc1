"""What the pages link to exists, in the repository and on the site; the Chinese pages are in step with the English."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from mkdocs.config import load_config

from site_pages import (
    CHINESE,
    CODE,
    DOCS,
    FENCE,
    ROOT,
    blocks,
    commands,
    english_of,
    is_chinese,
    name_of,
    site_pages,
    twin_of,
)

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HAN = re.compile(r"[\u3400-\u9fff]")
ENGLISH_ONLY = {  # pages without a Chinese twin, and why
    "architecture.md": "for people who change Keel: its code and comments are English",
    "decisions/": "the same",
    "notebook.md": "the same",
    "reliability.md": "the same",
    "releasing.md": "the same",
    "reference/": "made from docstrings, which are English",
    "results/": "tables of figures; the guides say in Chinese what they show",
    "data.md": "names of files and publishers",
    "words.md": "defines English words",
}
ENGLISH = "（英文）"
OTHER_EXAMPLES = {  # Chinese pages whose commands differ, and why
    "README.md": "the example is a Chinese Wikipedia",
    "guide/getting-started.md": "the example is a Chinese Wikipedia",
}


def linking_pages() -> list[Path]:
    return [*site_pages(), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them; the site makes the same (mkdocs.yml)."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
    return names


@pytest.mark.parametrize("page", linking_pages(), ids=name_of)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)} links to {link}; there is no such heading"


@pytest.mark.parametrize("page", [page for page in site_pages() if is_chinese(page)], ids=name_of)
def test_chinese_pages_link_to_chinese_pages_where_there_are_some(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8")).replace(f"[English]({english_of(page).name})", "")
    for link in LINK.findall(text):
        target = (page.parent / link.partition("#")[0]).resolve()
        if target.suffix == ".md" and not is_chinese(target):
            assert not twin_of(target).exists(), f"{name_of(page)} links to {link}, which exists in Chinese"


def test_an_anchor_that_does_not_exist_is_noticed() -> None:
    assert "what-you-can-rely-on" in anchors(ROOT / "README.md")
    assert "可以信赖的地方" in anchors(ROOT / f"README{CHINESE}.md")
    assert "your-own" not in anchors(ROOT / "README.md")


def english_pages() -> list[Path]:
    return [page for page in site_pages() if not is_chinese(page)]


def english_only(page: Path) -> bool:
    return any(name_of(page) == name or (name[-1] == "/" and name_of(page).startswith(name)) for name in ENGLISH_ONLY)


def test_every_page_has_a_chinese_twin_or_a_reason() -> None:
    lacking = {name_of(page) for page in english_pages() if not twin_of(page).exists()}
    assert lacking == {name_of(page) for page in english_pages() if english_only(page)}
    alone = [
        name_of(p) for p in site_pages() if is_chinese(p) and not p.with_name(p.name.replace(CHINESE, "")).exists()
    ]
    assert not alone, f"Chinese pages without an English one: {alone}"


def twins() -> list[Path]:
    return [page for page in english_pages() if twin_of(page).exists()]


def headings(page: Path) -> list[int]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]


def without_strings(code: str) -> str:
    """Python as its structure: without comments, and without what its strings say."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def same_words(english: list[str], chinese: list[str]) -> bool:
    """Whether two commands differ only in words that are Chinese, and in the option that says so."""
    if "--language" in chinese:
        place = chinese.index("--language")
        chinese = chinese[:place] + chinese[place + 2 :]
    return len(english) == len(chinese) and all(a == b or HAN.search(b) for a, b in zip(english, chinese, strict=True))


@pytest.mark.parametrize("page", twins(), ids=name_of)
def test_both_languages_have_the_same_headings_and_code(page: Path) -> None:
    ours, theirs = ([b for b in blocks(p) if b.language in CODE or b.name] for p in (page, twin_of(page)))
    assert headings(page) == headings(twin_of(page))
    if name_of(page) in OTHER_EXAMPLES:
        return
    assert [(b.language, b.name, bool(b.not_run)) for b in ours] == [
        (b.language, b.name, bool(b.not_run)) for b in theirs
    ]
    for one, two in zip(ours, theirs, strict=True):
        if one.language == "python":
            assert without_strings(one.body) == without_strings(two.body)
        elif one.language in CODE:
            for english, chinese in zip(commands(one), commands(two), strict=True):
                assert same_words(english.words, chinese.words), (english.words, chinese.words)


def test_the_navigation_says_in_chinese_which_pages_are_english() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    (chinese,) = [language for language in config.plugins["i18n"].config.languages if language.locale == CHINESE[1:]]
    shown = {"": "", **chinese.nav_translations}

    def check(entries: list[dict[str, object]], section: str) -> None:
        for entry in entries:
            ((title, target),) = entry.items()
            assert title in shown, f"mkdocs.yml: no Chinese title for {title}"
            if isinstance(target, list):
                check(target, title)
            else:
                marked = shown[title].endswith(ENGLISH) or shown[section].endswith(ENGLISH)
                assert marked == english_only(DOCS / str(target)), f"{target}: {shown[title]}"

    check(config.nav, "")
