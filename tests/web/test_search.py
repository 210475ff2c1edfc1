"""The tab Search: lines are ranked as the model's own vectors say, in both languages; thousands of lines are embedded
once, and further queries send one text."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from browsing import Page

SCRIPT = "<script>document.title = 'broken'</script> <img src=x onerror=alert(1)>"
LINES = [
    "A sailor is mending the sail.",
    "The stock market fell today.",
    "  Somebody repairs a part of a ship. 🙂 ",
    "",
    SCRIPT,
    'He said: "it\'s 50 % off"',
    "水手正在补船帆。",
]
KEPT = [line.strip() for line in LINES if line.strip()]
WORDS = ["captain", "sailor", "gull", "keel", "harbour", "dawn", "lantern", "sail"]
MANY = 3000


def shown(panel: Any) -> list[tuple[str, str]]:
    hits = panel.locator(".hit").all()
    return [(hit.locator(".hit-text").inner_text(), hit.locator(".hit-score").inner_text()) for hit in hits]


def ranked(model: Any, lines: list[str], query: str) -> list[tuple[str, str]]:
    vectors = model.embed([query, *lines], normalize=True, truncate=True)
    scores = vectors[1:] @ vectors[0]
    return [(lines[n], f"{scores[n]:.3f}") for n in np.argsort(-scores, kind="stable")]


def asked(page: Page) -> list[list[str]]:
    """Collects the texts of every request for vectors from now on."""
    texts = list[list[str]]()
    page.tab.on("request", lambda one: texts.append(json.loads(one.post_data)["texts"]) if "embed" in one.url else None)
    return texts


@pytest.mark.parametrize(("lang", "query", "lines", "ask"), [
    ("en", "Query", "Lines to search", "Search"),
    ("zh", "查询", "要搜索的文本，每行一条", "搜索"),
])  # fmt: skip
def test_lines_are_ranked_by_meaning(
    page: Page, offline: dict[str, Any], lang: str, query: str, lines: str, ask: str
) -> None:
    panel = page.open("search", lang, model="minilm")
    panel.get_by_label(lines).fill("\n".join(LINES))
    panel.get_by_label(query).fill("repairing a boat")
    panel.get_by_role("button", name=ask, exact=True).click()
    page.settled()
    expected = ranked(offline["minilm"], KEPT, "repairing a boat")
    assert [line for line, _ in expected[:2]] == [KEPT[2], KEPT[0]]  # what a person would say
    assert shown(panel) == expected
    assert page.tab.title().startswith("Keel") and panel.locator("script, img").count() == 0
    assert expected[0][0] in page.said and expected[0][1] in page.said
    address, values = page.hash, parse_qs(page.hash.partition("?")[2])
    assert values["query"] == ["repairing a boat"] and values["lines"] == ["\n".join(LINES)]
    page.tab.goto("about:blank")
    page.tab.goto(f"{page.url}/{address}")
    assert shown(page.settled()) == expected


def test_every_model_that_embeds_can_search_but_a_translator(page: Page, offline: dict[str, Any]) -> None:
    panel = page.open("search", model="bert", query="the captain", lines="\n".join(KEPT))
    options = panel.get_by_label("Model").locator("option").all()
    names = {option.get_attribute("value") for option in options}
    assert names == offline.keys() - {"translator"}
    for name in ("classifier", "writer", "minilm"):
        panel.get_by_label("Model").select_option(name)
        page.settled()
        assert shown(panel) == ranked(offline[name], KEPT, "the captain")


def test_thousands_of_lines_are_embedded_once(open_page: Any, server: Any, offline: dict[str, Any]) -> None:
    page = open_page(server.url, permissions=["clipboard-read", "clipboard-write"])
    lines = [f"the {WORDS[n % 8]} and the {WORDS[n // 8 % 8]} {n}" for n in range(MANY)]
    panel = page.open("search", model="bert", query="the gull at dawn")
    texts = asked(page)
    page.tab.evaluate("(text) => navigator.clipboard.writeText(text)", "\n".join([*lines, lines[0]]))
    panel.get_by_label("Lines to search").press("Control+a")
    panel.get_by_label("Lines to search").press("Control+v")
    assert panel.get_by_text("3,001 lines").is_visible() and not texts  # a long job waits for the button
    panel.get_by_role("button", name="Search", exact=True).click()
    panel.get_by_text("Computing vectors:").wait_for()
    assert panel.get_by_role("progressbar").is_visible()
    page.settled()
    assert sorted(text for batch in texts for text in batch) == sorted(lines)  # each line once
    assert not panel.get_by_role("progressbar").is_visible()
    best = ranked(offline["bert"], [*lines, lines[0]], "the gull at dawn")
    assert [score for _, score in shown(panel)] == [score for _, score in best[:10]]

    texts.clear()
    panel.get_by_label("Query").fill("a lantern")
    panel.get_by_label("Query").press("Enter")
    page.settled()
    assert texts == [["a lantern"]]
    best = ranked(offline["bert"], [*lines, lines[0]], "a lantern")
    assert [score for _, score in shown(panel)] == [score for _, score in best[:10]]

    texts.clear()
    line = panel.locator(".hit-text").nth(2).inner_text()
    panel.locator(".hit-like").nth(2).click()
    page.settled()
    assert texts == [] and panel.get_by_label("Query").input_value() == line  # its vector is there already
    assert shown(panel)[0][1] == "1.000"

    assert len(page.hash) < 500  # the lines are too long for the address
    page.tab.get_by_role("button", name="中文").click()
    assert len(page.settled().get_by_label("要搜索的文本").input_value().splitlines()) == MANY + 1
    assert texts == []
    page.tab.reload()
    assert len(page.settled().get_by_label("要搜索的文本").input_value().splitlines()) == MANY + 1


def test_a_full_queue_is_waited_for_and_a_refusal_is_said(page: Page) -> None:
    page.forgive("Failed to load resource")
    panel = page.open("search", model="minilm", query="a boat", lines="\n".join(KEPT))
    refused = list[int]()

    def refuse(route: Any) -> None:
        refused.append(1)
        if len(refused) < 3:
            route.fulfill(status=429, json={"error": {"message": "a queue"}})
        else:
            route.continue_()

    page.tab.route("**/v1/embed", refuse)
    panel.get_by_label("Query").fill("noodles")
    panel.get_by_label("Query").press("Enter")
    page.tab.wait_for_timeout(100)
    page.settled()
    assert len(refused) == 3 and panel.locator(".hit").count() == len(KEPT)
    page.tab.unroute("**/v1/embed")
    page.tab.route("**/v1/embed", lambda route: route.fulfill(status=422, json={"error": {"message": "no"}}))
    panel.get_by_label("Query").fill("something else")
    panel.get_by_label("Query").press("Enter")
    assert "It says: no" in panel.get_by_role("alert").inner_text()


def test_a_model_that_cannot_tell_lines_apart_is_said_to(page: Page) -> None:
    lines = "\n".join(f"the {word} sails" for word in WORDS)
    panel = page.open("search", model="bert", query="the gull at dawn", lines=lines)
    assert panel.get_by_text("hardly trained to compare texts").is_visible()
    panel.get_by_label("Model").select_option("minilm")
    page.settled()
    assert panel.get_by_text("hardly trained to compare texts").count() == 0
