"""The tab Tasks: each kind of answer is drawn as the server gave it, in both languages, with offsets that count emoji
and rare characters right."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from browsing import Page

SCRIPT = "<script>document.title = 'broken'</script>"
# Characters beyond 16 bits before, between and in what is marked: a page that counts UTF-16 is off by one for each.
EMOJI = f"🙂 The gull 𠀀 remembers 👩‍👩‍👧 the 𪚥keel and the captain the 🙂harbour at dawn. {SCRIPT}"


def bars(panel: Any) -> list[tuple[str, str]]:
    rows = panel.locator(".bar").all()
    return [(row.locator(".bar-name").inner_text(), row.locator(".bar-value").inner_text()) for row in rows]


def percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def marks(panel: Any) -> list[str]:
    return list(panel.locator(".span-text").all_inner_texts())


@pytest.mark.parametrize(("lang", "text", "ask"), [("en", "Text", "Answer"), ("zh", "文本", "作答")])
def test_labels_are_bars(page: Page, lang: str, text: str, ask: str) -> None:
    panel = page.open("tasks", lang, model="classifier", text="The captain.")
    panel.get_by_label(text).fill(f"The gull remembers 🙂 {SCRIPT}")
    panel.get_by_role("button", name=ask, exact=True).click()
    page.settled()
    (found,) = page.answer("/v1/predict", {"model": "classifier", "inputs": [f"The gull remembers 🙂 {SCRIPT}"]})[
        "answers"
    ]
    assert bars(panel) == [(label, percent(value)) for label, value in found["probabilities"].items()]
    assert panel.get_by_role("heading", level=3).inner_text() == found["label"] == page.said
    assert parse_qs(page.hash.partition("?")[2])["text"] == [f"The gull remembers 🙂 {SCRIPT}"]


def test_labels_that_are_numbers_are_ranked_too(page: Page) -> None:
    """In JavaScript the keys 0 and 1 of an object come in that order, whatever the order of the answer."""
    answer = {"label": "5", "probability": 0.6, "probabilities": {"5": 0.6, "4": 0.3, "0": 0.1}}
    page.tab.route("**/v1/predict", lambda route: route.fulfill(json={"answers": [answer], "model": "classifier"}))
    panel = page.open("tasks", model="classifier", text="The captain.")
    assert bars(panel) == [("5", "60.0%"), ("4", "30.0%"), ("0", "10.0%")]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_tags_stand_at_their_words(page: Page, lang: str) -> None:
    panel = page.open("tasks", lang, model="tagger", text=EMOJI)
    (found,) = page.answer("/v1/predict", {"model": "tagger", "inputs": [EMOJI]})["answers"]
    assert len(found["entities"]) > 2
    assert (
        marks(panel)
        == [one["text"] for one in found["entities"]]
        == [EMOJI[one["start"] : one["end"]] for one in found["entities"]]
    )
    notes = [f"{one['label']} {percent(one['probability'])}" for one in found["entities"]]
    assert panel.locator(".span-note").all_inner_texts() == notes
    shown = panel.locator(".marked-text").evaluate("""(node) => {
        const copy = node.cloneNode(true);
        copy.querySelectorAll(".span-note").forEach((note) => note.remove());
        return copy.textContent;
    }""")
    assert shown == EMOJI and page.tab.title().startswith("Keel")
    legend = panel.locator(".legend li").all_inner_texts()
    counts = {kind: sum(one["label"] == kind for one in found["entities"]) for kind in ("PLACE", "WHO")}
    assert sorted("".join(row.split()) for row in legend) == [f"{kind}{count}" for kind, count in counts.items()]


@pytest.mark.parametrize(("lang", "question", "context"), [
    ("en", "Question", "Text that has the answer"),
    ("zh", "问题", "包含答案的文本"),
])  # fmt: skip
def test_an_answer_is_marked_in_its_text(page: Page, lang: str, question: str, context: str) -> None:
    panel = page.open("tasks", lang, model="reader")
    panel.get_by_label(question).fill("Who remembers?")
    panel.get_by_label(context).fill(EMOJI)
    panel.get_by_label(context).press("Control+Enter")
    page.settled()
    (found,) = page.answer("/v1/predict", {"model": "reader", "inputs": [["Who remembers?", EMOJI]]})["answers"]
    assert found["answer"] and found["start"] > 2
    assert marks(panel) == [found["answer"]] == [EMOJI[found["start"] : found["end"]]]
    before = panel.locator(".marked-text").evaluate("(node) => node.firstChild.textContent")
    assert before == EMOJI[: found["start"]]  # not another place with the same words
    assert bars(panel) == [(one["text"], percent(one["probability"])) for one in found["best"]]
    panel.locator("button.bar-name").nth(2).click()
    assert marks(panel) == [found["best"][2]["text"]]


def test_choices_and_values(page: Page) -> None:
    panel = page.open("tasks", "zh", model="chooser", text="Which is a place?")
    panel.get_by_label("选项，每行一个").fill("captain\n\n keel \ngull")
    panel.get_by_role("button", name="作答", exact=True).click()
    page.settled()
    body = {"model": "chooser", "inputs": [["Which is a place?", ["captain", "keel", "gull"]]]}
    (found,) = page.answer("/v1/predict", body)["answers"]
    assert bars(panel) == list(zip(("captain", "keel", "gull"), map(percent, found["probabilities"]), strict=True))
    assert panel.locator(".bar.marked .bar-name").inner_text() == found["text"]
    panel.get_by_label("模型").select_option("scorer")
    page.settled()
    panel.get_by_label("第一段文本").fill("The gull.")
    panel.get_by_label("第二段文本").fill("The keel.")
    panel.get_by_role("button", name="作答", exact=True).click()
    page.settled()
    (value,) = page.answer("/v1/predict", {"model": "scorer", "inputs": [["The gull.", "The keel."]]})["answers"]
    assert panel.locator(".large-value").inner_text() == f"{value['value']:.3f}"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_lines_are_compared_by_their_meaning(page: Page, lang: str) -> None:
    lines = ["A sailor mends a sail.", "Noodles for lunch 🙂", "Somebody repairs a ship.", SCRIPT]
    panel = page.open("tasks", lang, model="minilm", lines="\n".join(lines))
    vectors = np.array(page.answer("/v1/embed", {"model": "minilm", "texts": lines, "normalize": True})["vectors"])
    shown = panel.locator(".heat-cell").all_inner_texts()
    assert shown == [f"{value:.2f}" for value in (vectors @ vectors.T).flatten()]
    assert [name.split(None, 1)[1] for name in panel.locator("tbody th").all_inner_texts()] == lines
    closest = {"en": "Most alike are lines 1 and 3", "zh": "最相近的是第 1 行和第 3 行"}[lang]
    assert panel.get_by_text(closest).is_visible()


@pytest.mark.parametrize(("lang", "title"), [("en", "Translation"), ("zh", "译文")])
def test_a_translation_shows_what_each_word_was_made_from(page: Page, lang: str, title: str) -> None:
    panel = page.open("tasks", lang, model="translator", text="the captain sails")
    found = page.answer("/v1/translate", {"model": "translator", "texts": ["the captain sails"], "attention": True})
    assert panel.get_by_role("heading", name=title, exact=True).is_visible()
    assert panel.locator(".translation").inner_text().split() == found["answers"][0]["translation"].split()
    columns = panel.locator(".matrix thead th").all_inner_texts()
    assert columns == ["[CLS]", "the", "captain", "sails", "[SEP]"]
    rows = panel.locator(".matrix tbody tr").all()
    cells = np.array([[float(cell) for cell in row.locator("td").all_inner_texts()] for row in rows])
    np.testing.assert_allclose(cells.sum(1), 1, atol=0.005 * len(columns) + 1e-9)
    mean = np.array(found["attention"]["weights"]).mean((0, 1))
    words = [[0], [1], [2], list(range(3, mean.shape[1] - 1)), [mean.shape[1] - 1]]
    last = [mean[-1, word].sum() for word in words]  # [SEP], which is a row of its own
    np.testing.assert_allclose(cells[-1], last, atol=0.0051)


def test_what_does_not_fit_is_said(page: Page) -> None:
    text = "The gull remembers the keel. " * 8
    panel = page.open("tasks", model="classifier", text=text)
    lost = page.answer("/v1/predict", {"model": "classifier", "inputs": [text]})["truncated_tokens"]
    assert lost > 10 and panel.get_by_text(f"{lost} tokens at the end were left out").is_visible()


def test_an_answer_leads_to_its_reasons_and_back(page: Page) -> None:
    panel = page.open("tasks", model="classifier", text="The gull 🙂.")
    panel.get_by_role("link", name="Why this answer?").click()
    page.tab.get_by_role("heading", name="Why this answer").wait_for()
    panel = page.settled()
    assert panel.get_by_label("Text").input_value() == "The gull 🙂."
    assert panel.locator(".scored").count() > 2
    page.tab.go_back()
    page.tab.get_by_role("heading", name="What the models do").wait_for()
    assert page.settled().get_by_label("Text").input_value() == "The gull 🙂."
