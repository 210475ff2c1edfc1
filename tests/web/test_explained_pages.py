"""The pages that `keel explain --out x.html` writes, in Chromium: nothing is loaded from anywhere, what was read is
shown as text, and every page can be read on a phone, in light and in dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HOSTILE = "今<script>x()</script>"
PAGES = {
    "attention": ("minilm", HOSTILE),
    "one-head": ("minilm", HOSTILE, "--layer", "4", "--head", "2"),
    "looks": ("minilm", HOSTILE, "--from", "今", "--to", "script"),
    "heads": ("classifier", HOSTILE, "--method", "heads"),
    "layers": ("bert", f"[MASK] {HOSTILE}", "--method", "layers"),
    "words": ("classifier", HOSTILE, "--method", "attribution"),
    "span": ("reader", "who?", "--pair", HOSTILE[:12], "--method", "attribution", "--by", "occlusion"),
    "translation": ("translator", HOSTILE),
    "long": ("minilm", "word " * 300),
}
TITLES = {"heads": "What each head is worth", "layers": "What each layer would answer"}


@pytest.fixture(scope="module")
def pages(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each written by the command."""
    from keel.cli.main import run

    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, (model, *arguments) in PAGES.items():
        found[name] = folder / f"{name}.html"
        assert run(["explain", str(folders[model]), *arguments, "--out", str(found[name])]) == 0
    return found


@pytest.mark.parametrize("name", PAGES)
def test_the_page_stands_alone(name: str, pages: dict[str, Path], browser: Any) -> None:
    asked, said = list[str](), list[str]()
    for width, scheme in ((1280, "light"), (360, "dark")):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(pages[name].as_uri())
        assert tab.locator("script").count() == 0
        if name != "long":
            assert "<script>" in tab.locator("body").inner_text() and "今" in tab.locator("body").inner_text()
        assert tab.locator("h1").inner_text() == TITLES.get(name, tab.locator("h1").inner_text()) != ""
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself does not scroll"
        paper, ink = tab.evaluate(
            "[document.body, document.querySelector('h1')].map(one => getComputedStyle(one))"
            ".map((style, n) => n ? style.color : style.backgroundColor)"
        )
        assert (_light(paper) > _light(ink)) == (scheme == "light")
        for cell in tab.locator("svg rect:first-of-type").all():
            assert _light(cell.evaluate("one => getComputedStyle(one).fill")) == pytest.approx(_light(paper), abs=1)
        context.close()
    assert said == [] and {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert {url for url in asked if url.startswith("file")} == {pages[name].as_uri()}
    assert pages[name].stat().st_size < 1_000_000


def _light(colour: str) -> float:
    """The mean of red, green and blue of `rgb(1, 2, 3)`."""
    return sum(map(float, colour.partition("(")[2].rstrip(")").split(",")[:3])) / 3


def test_the_words_of_a_page_are_shaded_by_their_scores(pages: dict[str, Path], browser: Any, folders: Any) -> None:
    import keel

    found = keel.load(folders["classifier"]).explain(HOSTILE, method="attribution")
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(pages["words"].as_uri())
    shown = tab.locator(".words span").evaluate_all("all => all.map(one => [one.textContent, one.title])")
    context.close()
    assert [text for text, _ in shown] == [word.text for word in found.reading.words]
    for (_, title), score in zip(shown, found.word_scores.tolist(), strict=True):
        assert float(title) == pytest.approx(score, abs=1e-3)
