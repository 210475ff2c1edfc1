"""On every tab: nothing is asked of another address, also with every other address blocked, and what people, models and
servers write is text, never markup."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import pytest

from browsing import EVERY_TAB, EVERY_TAB_IDS, TABS, WEB, Page

MARKUP = '<img src=x onerror="globalThis.broken = 1"><script>globalThis.broken = 1</script>&lt;\'"'
SERVED = [path for path in sorted(WEB.rglob("*")) if path.suffix in (".js", ".css", ".html", ".svg")]
# Names that never come from outside: what the page compares with names of its own.
OWN = {
    "object",
    "kind",
    "task",
    "method",
    "by",
    "baseline",
    "scale",
    "encoding",
    "dtype",
    "data",
    "weights",
    "abilities",
}
OWN_VALUES = {"view"}  # in the address
TAGS = (
    """() => Array.from(document.body.querySelectorAll("script, img, iframe, object, embed"), (one) => one.outerHTML)"""
)


def test_the_tabs_of_these_tests_are_those_of_the_page(page: Page) -> None:
    page.open()
    assert [f"tab-{tab}" for tab in TABS] == page.tab.get_by_role("tab").evaluate_all("all => all.map(one => one.id)")


def test_the_files_of_the_page_name_no_other_address_and_make_no_markup() -> None:
    assert len(SERVED) > 40
    for path in SERVED:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?:https?:|wss?:|[\"'(])//[\w.]", text), path
        code = re.sub(r"^ *//.*$", "", text, flags=re.MULTILINE)
        assert not re.search(r"(inner|outer)HTML|insertAdjacentHTML|document\.write|srcdoc|\beval\(", code), path


def test_every_file_forbids_what_is_not_its_own(server: Any) -> None:
    for name in ["", *(f"page/{path.relative_to(WEB).as_posix()}" for path in SERVED)]:
        with urlopen(f"{server.url}/{name}") as found:
            policy = dict(part.strip().split(" ", 1) for part in found.headers["content-security-policy"].split(";"))
            assert found.headers["x-content-type-options"] == "nosniff"
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "http:", "https:"} & set(" ".join(policy.values()).split())


def poisoned(value: Any, key: str = "") -> Any:
    """The same with markup at the end of each name and text."""
    if isinstance(value, dict):
        return {name: poisoned(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [poisoned(one, key) for one in value]
    return value + MARKUP if isinstance(value, str) and key not in OWN else value


def cleaned(value: Any) -> Any:
    """What was asked before the markup."""
    if isinstance(value, dict):
        return {name: cleaned(one) for name, one in value.items()}
    if isinstance(value, list):
        return [cleaned(one) for one in value]
    return value.replace(MARKUP, "") if isinstance(value, str) else value


@pytest.mark.parametrize(("tab", "values"), EVERY_TAB, ids=EVERY_TAB_IDS)
def test_a_tab_asks_only_its_server_and_shows_every_text_as_text(page: Page, tab: str, values: dict[str, Any]) -> None:
    """Every name and text of every answer has markup at its end, and so have the values in the address."""
    hosts = set[str]()

    def answer(route: Any) -> None:
        hosts.add(urlsplit(route.request.url).netloc)
        if not route.request.url.startswith(f"{page.url}/"):
            route.abort()
        elif "/v1/" not in route.request.url:
            route.continue_()
        else:
            given = route.request.post_data
            url = unquote(route.request.url).replace(MARKUP, "")
            found = route.fetch(url=url, post_data=given and json.dumps(cleaned(json.loads(given))))
            is_json = "json" in found.headers.get("content-type", "")
            route.fulfill(response=found, **({"json": poisoned(found.json())} if is_json else {}))

    page.tab.context.route("**/*", answer)
    panel = page.open(
        tab, **{name: value if name in OWN_VALUES else f"{value}{MARKUP}" for name, value in values.items()}
    )
    typed = panel.locator("textarea, input[type=text]").evaluate_all("all => all.map((one) => one.value)")
    assert panel.get_by_role("alert").count() == 0
    assert "<img src=x onerror=" in panel.inner_text() and MARKUP in "".join([*typed, panel.inner_text()])
    assert page.tab.evaluate(TAGS) == [] and page.tab.evaluate("globalThis.broken") is None
    assert page.tab.title() == "Keel: language encoders"
    assert hosts == {urlsplit(page.url).netloc}
