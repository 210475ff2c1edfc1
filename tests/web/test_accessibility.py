"""axe-core finds nothing on any tab with an answer in it, in both languages, light and dark; nor on what the page shows
when there is no answer.

axe-core comes from npm while the tests run, into a temporary folder. Without npm, or without its registry, these tests
are skipped, visibly.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from browsing import EVERY_TAB, EVERY_TAB_IDS, Page
from keel.serving.login import Login

PACKAGE = "axe-core@4.14.1"
# What axe could not judge counts too where it is about contrast. Lines that cross the tokens are in its way; they are
# for the eye only. It never judges the text of an SVG; a curve's has the colour and the ground of its legend.
RUN = """async (rules) => {
    document.querySelectorAll(".links").forEach((one) => one.style.setProperty("visibility", "hidden"));
    const found = await axe.run(document, { resultTypes: ["violations", "incomplete"], ...rules });
    const unjudged = found.incomplete.filter((rule) => rule.id === "color-contrast");
    const seen = (rule) => rule.nodes.filter((node) => !(unjudged.includes(rule) && node.html.startsWith("<text")));
    return [...found.violations, ...unjudged].flatMap((rule) => seen(rule).map((node) =>
        `${rule.impact} ${rule.id}: ${node.target.join(" ")} ${node.html.slice(0, 160)} ${node.failureSummary}`));
}"""


# Everything in light English and in dark Chinese; between them only what depends on the colours.
ALL: dict[str, Any] = {}
COLOURS = {"runOnly": ["color-contrast"]}
LOOKS = [
    ("English", "light", ALL),
    ("English", "dark", COLOURS),
    ("中文", "dark", ALL),
    ("中文", "light", COLOURS),
]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm to fetch axe-core with")
    folder: Path = tmp_path_factory.mktemp("axe")
    options = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    done = subprocess.run(
        [npm, "install", *options, "--prefix", str(folder), PACKAGE],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        pytest.skip(f"npm could not fetch {PACKAGE}: {done.stderr[-300:]}")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


def violations(page: Page, axe: str) -> list[str]:
    """In both languages, light and dark, of what is shown."""
    found = list[str]()
    page.tab.evaluate(axe)
    for lang, scheme, rules in LOOKS:
        button = page.tab.locator("header").get_by_role("button", name=lang)
        if button.get_attribute("aria-pressed") == "false":
            button.click()
            page.quiet()
        page.tab.emulate_media(color_scheme=scheme)
        found += [f"{lang}, {scheme}: {one}" for one in page.tab.evaluate(RUN, rules)]
    return found


@pytest.mark.parametrize(("tab", "values"), EVERY_TAB, ids=EVERY_TAB_IDS)
def test_axe_finds_nothing(page: Page, axe: str, tab: str, values: dict[str, Any]) -> None:
    page.open(tab, **values)
    assert page.tab.locator("[role=alert]").count() == 0, "there is no answer to look at"
    assert violations(page, axe) == []


@pytest.mark.parametrize("status", [401, 503])
def test_axe_finds_nothing_while_the_server_refuses(page: Page, axe: str, status: int) -> None:
    page.forgive(f"status of {status}")
    refusal = {"error": {"message": "no"}}
    page.tab.route("**/v1/models", lambda route: route.fulfill(status=status, json=refusal))
    page.tab.goto(page.url)
    page.tab.locator("main [role=alert], main form").wait_for()
    assert violations(page, axe) == []


def test_axe_finds_nothing_on_an_error_and_beside_tabs_without_a_model(page: Page, axe: str) -> None:
    def only_one(route: Any) -> None:
        answer = route.fetch().json()
        route.fulfill(json={**answer, "data": [one for one in answer["data"] if one["id"] == "minilm"]})

    page.forgive("status of 422")
    page.tab.route("**/v1/models", only_one)
    panel = page.open("attention", model="minilm", text="sail " * 600)
    assert panel.get_by_role("alert").is_visible()
    assert page.tab.locator('[role=tab][aria-disabled="true"]').count() > 0
    assert violations(page, axe) == []


@pytest.mark.parametrize("lang", ["en", "zh-CN"])
@pytest.mark.parametrize("note", ["note", "wrong"])
def test_axe_finds_nothing_on_the_form_for_the_key(page: Page, axe: str, lang: str, note: str) -> None:
    status, headers, form = Login.form({b"accept-language": lang.encode()}, note)
    page.forgive("status of 401")
    page.tab.route("**/", lambda route: route.fulfill(status=status, headers=headers, body=form))
    page.tab.goto(page.url)
    page.tab.evaluate(axe)
    for scheme in ("light", "dark"):
        page.tab.emulate_media(color_scheme=scheme)
        assert page.tab.evaluate(RUN, ALL) == []
