"""The page by keyboard alone: every tab is reached, filled in, run and read without a pointer, and what has the focus
can always be seen.

The walk over all stops of the Tab key goes over one answer of each tab; KEEL_FAULTS=all: over all of them.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from browsing import EVERY_TAB, SHOWN, TABS, Page

ALL = os.environ.get("KEEL_FAULTS") == "all"
WALKED = EVERY_TAB if ALL else [(tab, SHOWN.get(tab, [{}])[0]) for tab in TABS]

# What has the focus: whether it is outlined, inside the window and on top. None: nothing has.
FOCUS = """() => {
    const one = document.activeElement;
    if (one === document.body) return null;
    (globalThis.reached ??= new Set()).add(one);
    const style = getComputedStyle(one);
    const box = one.getBoundingClientRect();
    const middle = Math.min(box.top + box.height / 2, innerHeight - 1);
    const top = document.elementFromPoint(box.left + box.width / 2, middle);
    return {
        name: `${one.tagName} ${one.id} ${one.className} ${one.textContent.slice(0, 30)}`,
        outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
        visible: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        covered: Boolean(top) && !one.contains(top) && !top.contains(one),
    };
}"""
MISSED = """() => Array.from(document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]"))
    .filter((one) => one.checkVisibility() && one.tabIndex >= 0 && !one.disabled && !reached.has(one))
    .map((one) => one.outerHTML.slice(0, 200))"""
# Groups of which only one member is a stop: the others are reached with the arrows.
STRANDED = """() => Array.from(document.querySelectorAll("button[tabindex='-1']"))
    .filter((one) => one.checkVisibility()
        && !one.closest("[role=tablist], [role=toolbar], [role=group]")?.querySelector("button[tabindex='0']"))
    .map((one) => one.outerHTML.slice(0, 200))"""
ACTIVE = "() => document.activeElement.outerHTML.slice(0, 120)"
MOST_STOPS = 60


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.tab.keyboard.press(key)


def tab_to(page: Page, wanted: Any, key: str = "Tab") -> None:
    """Presses Tab until this has the focus."""
    wanted.wait_for()
    for _ in range(MOST_STOPS):
        page.tab.keyboard.press(key)
        if wanted.evaluate("(one) => one === document.activeElement"):
            return
    raise AssertionError("the Tab key does not reach it")


@pytest.mark.parametrize(("tab", "values"), WALKED)
def test_the_tab_key_reaches_everything_and_the_focus_is_seen(page: Page, tab: str, values: dict[str, Any]) -> None:
    page.open(tab, **values)
    for _ in range(MOST_STOPS):
        page.tab.keyboard.press("Tab")
        focus = page.tab.evaluate(FOCUS)
        if focus is None:
            break
        assert focus["outlined"] and focus["visible"] and not focus["covered"], focus
    assert page.tab.evaluate(MISSED) == []
    assert page.tab.evaluate(STRANDED) == []


def test_arrows_open_the_tabs_and_pass_over_none(page: Page) -> None:
    page.open(TABS[0])
    tab_to(page, page.tab.locator(f"#tab-{TABS[0]}"))
    for name in [*TABS[1:], TABS[0]]:
        press(page, "ArrowRight")
        assert page.tab.evaluate("document.activeElement.id") == f"tab-{name}"
        if page.tab.locator(f"#tab-{name}").get_attribute("aria-disabled") is None:
            page.settled()
            assert page.tab.locator(f"#panel-{name}").is_visible()
    press(page, "End")
    assert page.tab.evaluate("document.activeElement.id") == f"tab-{TABS[-1]}"
    press(page, "Home")
    assert page.tab.evaluate("document.activeElement.id") == f"tab-{TABS[0]}"


def test_a_word_is_masked_predicted_and_put_back(page: Page) -> None:
    panel = page.open("fill", model="bert", text="The gull sails.")
    tab_to(page, panel.locator("textarea"))
    press(page, "Control+a")
    page.tab.keyboard.type("The captain remembers the keel.")
    tab_to(page, panel.locator(".word").first)
    press(page, "ArrowRight", "Enter")
    page.settled()
    assert panel.locator("textarea").input_value() == "The [MASK] remembers the keel."
    assert page.tab.evaluate("document.activeElement.textContent") == "[MASK]"  # the focus stays where it was
    tab_to(page, panel.locator("button.bar-name").nth(1))
    word = panel.locator("button.bar-name").nth(1).inner_text()
    press(page, "Enter")
    assert panel.locator("textarea").input_value() == f"The {word} remembers the keel."


def test_attention_is_asked_and_walked(page: Page) -> None:
    panel = page.open("attention", model="minilm", text="A keel.", layer=1, head=1)
    tab_to(page, panel.locator("textarea").first)
    press(page, "Control+a")
    page.tab.keyboard.type("The captain sails at dawn.")
    tab_to(page, panel.locator("button.main"))
    press(page, "Enter")
    panel.locator(".token", has_text="dawn").wait_for()
    page.settled()
    tab_to(page, panel.locator(".head-cell").first)
    press(page, "ArrowDown", "ArrowRight", "Enter")
    page.settled()
    assert panel.get_by_role("heading", name="Layer 2, head 2").is_visible()
    tab_to(page, panel.get_by_label("Show", exact=True).and_(panel.locator("select")))
    page.tab.keyboard.type("rollout")
    page.settled()
    assert panel.get_by_role("heading", name="Rollout through all layers").is_visible()
    tab_to(page, panel.get_by_label("hide [CLS] and [SEP]"))
    press(page, "Space")
    page.settled()
    assert panel.locator(".token").first.inner_text() == "The"
    tab_to(page, panel.locator(".token").first)
    press(page, "ArrowRight")
    panel.get_by_role("heading", name="“captain” looks at").wait_for()


def test_a_model_is_chosen_and_its_reasons_are_followed(page: Page) -> None:
    panel = page.open("tasks", model="minilm")
    tab_to(page, panel.get_by_label("Model"))
    page.tab.keyboard.type("classifier")
    page.settled()
    tab_to(page, panel.locator("textarea"), "Shift+Tab")
    press(page, "Control+a")
    page.tab.keyboard.type("The gull.")
    press(page, "Control+Enter")
    page.settled()
    assert panel.locator(".bar").count() == 4
    tab_to(page, panel.get_by_role("link", name="Why this answer?"))
    press(page, "Enter")
    page.tab.locator("#panel-why .scored").first.wait_for()
    tab_to(page, page.settled().locator("summary"))
    press(page, "Enter")
    assert page.tab.locator("#panel-why details table").is_visible()
