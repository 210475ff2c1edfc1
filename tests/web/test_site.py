"""The site of `make docs`: it is built without a warning, asks the network for nothing, and is searched in a browser,
in English and Chinese, from a server and from a disk."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import keel

ROOT = Path(__file__).parents[2]
ASSET = re.compile(r"<(?:script|img|iframe|source|object|embed)\b[^>]*?\b(?:src|data)=\"?([^\"\s>]+)")
STYLE = re.compile(r"<link\b[^>]*?\brel=\"?(?!canonical|alternate|next|prev)[^>]*>")
ELSEWHERE = re.compile(r"(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    return out


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        text = page.read_text(encoding="utf-8")
        found = ASSET.findall(text) + STYLE.findall(text)
        away = [asset for asset in found if ELSEWHERE.match(asset) or ELSEWHERE.search(asset, asset.find("href="))]
        assert not away, f"{page.relative_to(site)}: {away}"
        assert 'class="mermaid"' not in text, "the theme would fetch a library for it"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_no_page_links_to_a_file_that_the_site_does_not_have(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue  # its links begin at the root of a server
        for link in re.findall(r"<a\b[^>]*?\bhref=\"?([^\"#\s>]+)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", link):
                assert (page.parent / link).exists(), f"{page.relative_to(site)} links to {link}"


def test_the_reference_has_every_public_function(site: Path) -> None:
    text = (site / "reference" / "keel.html").read_text(encoding="utf-8")
    for name in set(keel.__all__) - {"__version__"}:
        assert f'id="keel.{name}"' in text, name


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "written, shown",
    [
        ("[store.py](../../src/keel/corpus/store.py)", "`src/keel/corpus/store.py`"),
        ("[kills](../../tests/faults/test_kills.py)", "kills (`tests/faults/test_kills.py`)"),
        ("[decisions](../decisions/)", "[decisions](../decisions/README.md)"),
        ("[data](../data.md#the-commands)", "[data](../data.md#the-commands)"),
        ("[there](https://example.org/a) and [here](#below)", "[there](https://example.org/a) and [here](#below)"),
        ("Tags. [简体中文](tag.zh-CN.md)", "Tags. "),
        ("一行，\n另一行", "一行，另一行"),
        ("```tsv a.tsv\n[x](y)\tz\n```", '```tsv title="a.tsv"\n[x](y)\tz\n```'),
    ],
)
def test_pages_are_changed_for_the_site(hooks: ModuleType, written: str, shown: str) -> None:
    assert hooks.for_site(written, "docs/guide/tag.md", "guide/tag.md") == shown


def test_links_of_the_readme_are_those_of_the_home_page(hooks: ModuleType) -> None:
    written = "[start](docs/guide/getting-started.md), ![line](docs/line.svg), [LICENSE](LICENSE)"
    shown = "[start](guide/getting-started.md), ![line](line.svg), `LICENSE`"
    assert hooks.for_site(written, "README.md", "index.md") == shown


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture
def page(browser: Any, site: Path, server: str) -> Iterator[Any]:
    """A page of the browser that fails the test if it asks for anything that is not of the site."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    away: list[str] = []
    local = (server, site.as_uri(), "data:", "blob:", "about:")
    opened.on("request", lambda request: request.url.startswith(local) or away.append(request.url))
    yield opened
    opened.close()
    assert not away


def search(page: Any, words: str) -> list[str]:
    """The addresses of the pages found, best first."""
    box = page.locator("[data-md-component=search-query]")
    page.keyboard.press("s")
    box.fill(words)
    box.press("End")
    page.locator(".md-search-result__item a").first.wait_for(timeout=20_000)
    places: list[str] = page.locator(".md-search-result__item a").evaluate_all("all => all.map(a => a.href)")
    return list(dict.fromkeys(place.partition("?")[0] for place in places))  # several sections of a page are one place


@pytest.mark.parametrize("start, words, found", [
    ("index.html", "extend-positions", "guide/family.html"),
    ("index.html", "finetune", "reference/keel.html"),
    ("zh-CN/index.html", "词向量", "zh-CN/guide/words.html"),
    ("zh-CN/guide/words.html", "检查点", "zh-CN/guide/files-and-folders.html"),
])  # fmt: skip
@pytest.mark.parametrize("on_disk", [False, True], ids=["server", "disk"])
def test_a_word_is_found(page: Any, site: Path, server: str, on_disk: bool, start: str, words: str, found: str) -> None:
    page.goto(f"{site.as_uri() if on_disk else server}/{start}")
    places = search(page, words)
    assert any(place.endswith(f"/{found}") for place in places[:3]), places


def test_a_word_that_is_nowhere_is_not_found(page: Any, server: str) -> None:
    page.goto(f"{server}/index.html")
    page.keyboard.press("s")
    page.locator("[data-md-component=search-query]").fill("zweihundert")
    page.locator("[data-md-component=search-query]").press("End")
    page.get_by_text("No matching documents").wait_for(timeout=20_000)


def test_the_language_of_a_page_is_switched(page: Any, server: str) -> None:
    page.goto(f"{server}/guide/tag.html")
    page.locator("label[for=__search]").first.wait_for(state="attached")
    page.get_by_role("button", name="Select language").hover()
    page.get_by_role("link", name="简体中文").click()
    page.wait_for_url(f"{server}/zh-CN/guide/tag.html")
    assert page.locator("h1").inner_text().startswith("序列标注")
    page.get_by_role("button", name="选择当前语言").hover()
    page.get_by_role("link", name="English").click()
    page.wait_for_url(f"{server}/guide/tag.html")
