"""The tab Why: scores of words, of heads and of layers are those of `/v1/explain`, in both languages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from browsing import Page

TEXT = "The gull 🙂 remembers the 𪚥 keel at dawn. <b>"


def number(shown: str) -> float:
    return float(shown.replace("−", "-").replace("+", ""))


def explain(page: Page, model: str, text: str, **body: Any) -> Any:
    return page.answer("/v1/explain", {"model": model, "text": text, **body})


def shown_words(panel: Any) -> list[tuple[str, float]]:
    words = panel.locator(".scored").all()
    return [(one.locator("span").first.inner_text(), number(one.locator(".score").inner_text())) for one in words]


@pytest.mark.parametrize(
    ("lang", "by", "label"), [("en", "What speaks for the label “{}”", "Label"), ("zh", "哪些词支持标签“{}”", "标签")]
)
def test_words_have_signed_scores(page: Page, lang: str, by: str, label: str) -> None:
    panel = page.open("why", lang, model="classifier", text=TEXT)
    for chosen in ("", "sailor"):
        panel.get_by_label(label, exact=True).select_option(chosen)
        page.settled()
        found = explain(page, "classifier", TEXT, method="attribution", **({"label": chosen} if chosen else {}))
        assert panel.get_by_role("heading", level=3).inner_text() == by.format(found["answer"]["label"])
        shown = shown_words(panel)
        assert [word for word, _ in shown] == [word["text"] for word in found["words"]]
        assert "🙂" in dict(shown) and "𪚥" in dict(shown)
        scores = np.array([word["score"] for word in found["words"]])
        digits = len(panel.locator(".scored .score").first.inner_text().partition(".")[2])
        np.testing.assert_allclose([score for _, score in shown], scores, atol=0.51 * 10**-digits)
        assert np.abs(scores).max() > 10**-digits  # the digits show something
        for node, score in zip(panel.locator(".scored").all(), scores, strict=True):
            side = "neither" if abs(score) < 0.5 * 10**-digits else "for" if score > 0 else "against"
            assert side in str(node.get_attribute("class")).split()


def test_why_this_span_by_occlusion(page: Page) -> None:
    context = "At dawn 🙂 the gull remembers the keel."
    panel = page.open("why", model="reader", text="Who remembers?", pair=context, by="occlusion")
    found = explain(page, "reader", "Who remembers?", pair=context, method="attribution", by="occlusion")
    assert (
        panel.get_by_role("heading", level=3).inner_text() == f"What speaks for the answer “{found['answer']['span']}”"
    )
    assert [word for word, _ in shown_words(panel)] == [word["text"] for word in found["words"]]
    best = max(found["words"], key=lambda word: abs(word["score"]))
    assert panel.locator(".signed-bar .bar-name").first.inner_text() == best["text"]
    assert page.said.startswith(f"the answer “{found['answer']['span']}”: {best['text']} ")


@pytest.mark.parametrize(("lang", "view"), [("en", "What is each head worth?"), ("zh", "每个头有多大作用？")])
def test_heads_are_a_grid_of_signed_numbers(page: Page, lang: str, view: str) -> None:
    pair = {"text": "A sailor mends a sail.", "pair": "Somebody repairs a ship."}
    panel = page.open("why", lang, model="minilm", **pair)
    panel.get_by_label({"en": "What to explain", "zh": "要解释什么"}[lang]).select_option(view)
    page.settled()
    changes = np.array(explain(page, "minilm", pair["text"], pair=pair["pair"], method="heads")["changes"])
    names = [str(cell.get_attribute("aria-label")) for cell in panel.locator(".head-cell").all()]
    values = np.array([number(name.replace("：", ":").rpartition(": ")[2] or name) for name in names])
    digits = len(names[0].rpartition(".")[2])
    np.testing.assert_allclose(values, changes.flatten(), atol=0.51 * 10**-digits)
    layer, head = np.unravel_index(np.abs(changes).argmax(), changes.shape)
    best = {"en": f"Layer {layer + 1}, head {head + 1}", "zh": f"第 {layer + 1} 层，第 {head + 1} 头"}[lang]
    assert panel.locator(".signed-bar .bar-name").first.inner_text() == best
    panel.get_by_role("link", name={"en": "Look at its attention", "zh": "查看它的注意力"}[lang]).click()
    page.tab.locator("#panel-attention h3", has_text=best).wait_for()


def test_layers_have_their_first_guesses(page: Page) -> None:
    text = "The [MASK] remembers the [MASK]."
    panel = page.open("why", model="bert", text=text, view="layers")
    found = explain(page, "bert", text, method="layers")
    cards = panel.locator(".card").all()
    assert len(cards) == len(found["places"]) == 2
    for card, place in zip(cards, found["places"], strict=True):
        rows = card.locator("tbody tr").all()
        assert len(rows) == len(place["layers"])
        for row, layer in zip(rows, place["layers"], strict=True):
            guesses = [f"{one['text']}{100 * one['probability']:.1f}%" for one in layer["guesses"]]
            assert row.locator(".guess").all_inner_texts() == guesses
            assert row.locator(".bar-value").inner_text() == f"{100 * layer['final_probability']:.1f}%"


def test_one_word_s_tag_and_one_token_are_explained(page: Page) -> None:
    panel = page.open("why", model="tagger", text="The gull remembers the keel.")
    panel.get_by_label("Word", exact=True).fill("keel")
    panel.get_by_label("Word", exact=True).press("Enter")
    page.settled()
    assert "of “keel”" in panel.get_by_role("heading", level=3).inner_text()
    panel.get_by_label("Model").select_option("bert")
    page.settled()
    assert panel.get_by_text("Put [MASK] into the text").is_visible()
    panel.get_by_label("Text with [MASK]").fill("The [MASK] sails.")
    panel.get_by_label("Token", exact=True).fill("gull")
    panel.get_by_role("button", name="Explain").click()
    page.settled()
    assert panel.get_by_role("heading", level=3).inner_text() == "What speaks for “gull” at [MASK]"


def test_what_cannot_be_explained_is_said(page: Page) -> None:
    page.forgive("status of 422")
    panel = page.open("why", model="tagger", text="The gull.", word="albatross")
    assert "there is no word 'albatross'" in panel.get_by_role("alert").inner_text()
    options = panel.get_by_label("Model").locator("option").evaluate_all("all => all.map(one => one.value)")
    assert "translator" not in options and "minilm" in options
