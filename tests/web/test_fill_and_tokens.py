"""The tabs Fill and Tokens, used in both languages: what they show is what the server answers, and the address has it
all."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import pytest

from browsing import Page

ENGLISH = "The old captain remembers the harbour at dawn."
CHINESE = "老船长看着龙骨。"
TEXTS = {"en": ENGLISH, "zh": CHINESE}


def bars(column: Any) -> list[list[tuple[str, str]]]:
    """For each mask the tokens and figures that are shown."""
    names = ".mask:nth-child({}) .bar-name", ".mask:nth-child({}) .bar-value"
    shown = []
    for number in range(1, column.locator(".mask").count() + 1):
        tokens, figures = (column.locator(name.format(number)).all_inner_texts() for name in names)
        shown.append(list(zip(tokens, figures, strict=True)))
    return shown


def expected(answer: Any) -> list[list[tuple[str, str]]]:
    masks = answer["results"][0]["masks"]
    return [[(one["token"], f"{100 * one['probability']:.1f}%") for one in ranked] for ranked in masks]


def state(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(page.hash.partition("?")[2]).items()}


@pytest.mark.parametrize("lang, word, masked, name", [
    ("en", "captain", "The old [MASK] remembers the harbour at dawn.", "Mask 1, was “captain”"),
    ("zh", "船", "老[MASK]长看着龙骨。", "掩码 1，原词“船”"),
])  # fmt: skip
def test_a_word_that_is_clicked_is_masked_and_comes_back(
    page: Page, lang: str, word: str, masked: str, name: str
) -> None:
    panel = page.open("fill", lang, text=TEXTS[lang], model="bert")
    text = panel.locator("textarea")
    strip = panel.get_by_role("toolbar")
    strip.get_by_role("button", name=word, exact=True).click()
    page.settled()
    assert text.input_value() == masked
    assert panel.locator("h4").all_inner_texts() == [name]
    assert bars(panel) == expected(page.answer("/v1/fill", {"model": "bert", "texts": [masked], "top": 5}))
    assert state(page)["text"] == masked
    strip.locator('[aria-pressed="true"]').click()
    page.settled()
    assert text.input_value() == TEXTS[lang]
    assert bars(panel) == []


def test_several_masks_and_two_models_beside_each_other(page: Page) -> None:
    panel = page.open("fill", text=ENGLISH, model="bert", second="early", top=3)
    strip = panel.get_by_role("toolbar")
    for word in ("old", "harbour", "dawn"):
        strip.get_by_role("button", name=word, exact=True).click()
    page.settled()
    masked = "The [MASK] captain remembers the [MASK] at [MASK]."
    columns = panel.locator(".card")
    assert columns.locator("h3").all_inner_texts() == ["bert", "early"]
    found = [bars(column) for column in columns.all()]
    for shown, model in zip(found, ("bert", "early"), strict=True):
        assert shown == expected(page.answer("/v1/fill", {"model": model, "texts": [masked], "top": 3}))
    assert found[0] != found[1]
    assert [len(ranked) for ranked in found[0]] == [3, 3, 3]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_prediction_is_put_into_the_text(page: Page, lang: str) -> None:
    masked = {"en": "The [MASK] captain sees the [MASK].", "zh": "老[MASK]长看着[MASK]骨。"}[lang]
    panel = page.open("fill", lang, text=masked, model="bert")
    second = panel.locator(".mask").nth(1).locator(".bar-name").nth(2)
    token = second.inner_text()
    second.click()
    page.settled()
    before, middle, after = masked.split("[MASK]")
    assert panel.locator("textarea").input_value() == f"{before}[MASK]{middle}{token}{after}"
    assert panel.locator(".mask").count() == 1


def test_a_reload_and_a_link_show_the_same(page: Page) -> None:
    panel = page.open("fill", text=ENGLISH, model="bert")
    panel.get_by_role("toolbar").get_by_role("button", name="captain", exact=True).click()
    panel.get_by_label("Beside it").select_option("early")
    panel.get_by_label("Predictions for each mask").select_option("10")
    page.settled()
    shown, address = [bars(column) for column in panel.locator(".card").all()], page.hash
    assert [len(column[0]) for column in shown] == [10, 10]
    for again in (page.tab.reload, lambda: page.tab.goto(f"{page.url}/{address}")):
        again()
        panel = page.settled()
        assert [bars(column) for column in panel.locator(".card").all()] == shown
        assert panel.locator("h4").first.inner_text() == "Mask 1, was “captain”"
        assert page.hash == address


def test_back_and_forward_go_through_the_tabs(page: Page) -> None:
    page.open("fill", text="The [MASK] sails.", model="bert")
    page.tab.get_by_role("tab", name="Tokens").click()
    page.settled().get_by_label("Text").fill("keelhauling")
    assert "keelhauling" in page.hash
    page.tab.go_back()
    panel = page.settled()
    assert panel.get_by_role("heading", level=2).inner_text() == "Fill in masked words"
    assert panel.locator("textarea").input_value() == "The [MASK] sails."
    page.tab.go_forward()
    panel = page.settled()
    assert panel.get_by_role("heading", level=2).inner_text() == "Tokens of a text"
    assert panel.get_by_label("Text").input_value() == "keelhauling"


@pytest.mark.parametrize("lang, rate", [("en", "tokens per word"), ("zh", "每词词元数")])
def test_tokens_are_those_of_the_server(page: Page, lang: str, rate: str) -> None:
    text = "Unbelievably, the 7 old sailors 🙂 看着龙骨 Ærøskøbing"
    panel = page.open("tokens", lang, text=text, model="bert", second="minilm")
    columns = panel.locator(".columns > .card")
    assert columns.locator("h3").all_inner_texts() == ["bert", "minilm"]
    for column, model in zip(columns.all(), ("bert", "minilm"), strict=True):
        found = page.answer("/v1/tokens", {"model": model, "texts": [text]})["texts"][0]["tokens"]
        assert column.locator(".piece-text").all_text_contents() == [one["text"] for one in found]
        assert column.locator(".piece-id").all_text_contents() == [str(one["id"]) for one in found]
        assert column.locator(".piece.begins").count() == sum(one["word_start"] for one in found)
        column.locator("summary").click()
        covered = [cells[4] for cells in rows(column)]
        assert covered == [text[one["start"] : one["end"]] for one in found]
        words = 10  # each Chinese character is one
        tiles = dict(zip(column.locator("dt").all_inner_texts(), column.locator("dd").all_inner_texts(), strict=True))
        assert tiles[rate] == f"{len(found) / words:.2f}"


def rows(column: Any) -> list[list[str]]:
    read = "all => all.map((row) => Array.from(row.cells, (cell) => cell.textContent))"
    found: list[list[str]] = column.locator("tbody tr").evaluate_all(read)
    return found


def test_the_language_changes_all_texts_and_keeps_the_state(page: Page) -> None:
    page.open("fill", text="The [MASK] sails.", model="bert")
    page.tab.get_by_role("button", name="中文").click()
    panel = page.settled()
    assert page.tab.evaluate("document.documentElement.lang") == "zh-CN"
    assert panel.get_by_role("heading", level=2).inner_text() == "填补被掩盖的词"
    assert panel.locator("textarea").input_value() == "The [MASK] sails."
    assert page.tab.evaluate("document.activeElement.lang") == "zh-CN"
    page.tab.reload()
    assert page.settled().get_by_role("heading", level=2).inner_text() == "填补被掩盖的词"


def test_both_languages_have_the_same_texts(page: Page) -> None:
    page.open("fill")
    strings = {
        lang: page.tab.evaluate(f"async () => (await import('/page/strings/{lang}.js')).default")
        for lang in ("en", "zh")
    }
    assert strings["en"].keys() == strings["zh"].keys()
    for key, text in strings["en"].items():
        assert text and strings["zh"][key], key
        assert placeholders(text) >= placeholders(strings["zh"][key]), key


def placeholders(text: str) -> set[str]:
    return {part.partition("}")[0] for part in text.split("{")[1:]}


def test_a_server_that_has_gone_is_said_and_asked_again(page: Page) -> None:
    panel = page.open("fill", text="The [MASK] sails.", model="bert")
    page.forgive("Failed to load resource")
    page.tab.route("**/v1/fill", lambda route: route.fulfill(status=429, json={"error": {"message": "a queue"}}))
    panel.get_by_role("button", name="Predict").click()
    alert = panel.get_by_role("alert")
    assert "The server is busy: its queue is full. It says: a queue" in alert.inner_text()
    page.tab.unroute("**/v1/fill")
    alert.get_by_role("button", name="Try again").click()
    panel.locator(".bar").first.wait_for()
    assert panel.get_by_role("alert").count() == 0
