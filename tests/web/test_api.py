"""The tab API: the lines it shows are run as they are, in a shell and in Python, and give what the page has got."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from browsing import Page
from served import near

# What shells, JSON and Python each read in their own way; line breaks, a tab, a bell, controls and bidirectional marks.
SHORT = 'It\'s "50 %" `id` \\n 水🙂\n\u2028'
NASTY = f"{SHORT} $HOME !! {{a}} ''' \"\"\" \t \u0085\u202e\x07 <script>alert(1)</script>"
PAIRS = f"a gull\n{SHORT.splitlines()[0]}"
QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("fill", {"model": "bert", "text": f"The [MASK] sails. {SHORT}"}),
    ("tokens", {"model": "bert", "text": NASTY}),
    ("tasks", {"model": "classifier", "text": NASTY}),
    ("tasks", {"model": "reader", "text": "Who's there?", "pair": NASTY}),
    ("tasks", {"model": "chooser", "text": "Which?", "pair": PAIRS}),
    ("tasks", {"model": "translator", "text": "the captain sails"}),
    ("tasks", {"model": "minilm", "lines": PAIRS}),
    ("attention", {"model": "minilm", "text": "A sailor's sail.", "pair": "水手"}),
    ("why", {"model": "classifier", "text": 'It\'s "the gull".', "by": "occlusion"}),
    ("why", {"model": "bert", "text": "The [MASK] sails.", "view": "layers"}),
]
IDS = [f"{tab}-{values['model']}" for tab, values in QUESTIONS]


def programs(page: Page) -> dict[str, str]:
    page.tab.get_by_role("tab", name="API").click()
    shown = page.settled().locator("code")
    found = shown.evaluate_all("all => all.map((one) => [one.dataset.program, one.textContent])")
    return dict(found)


def shell(line: str, environment: dict[str, str] | None = None) -> Any:
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=30, check=True)
    return json.loads(done.stdout)


def python(program: str) -> dict[str, Any]:
    names = dict[str, Any]()
    exec(compile(program, "program", "exec"), names)
    return names


def folder_named(program: str, folders: dict[str, Path]) -> str:
    return re.sub(r'keel\.load\("(\w+)"\)', lambda found: f"keel.load({str(folders[found[1]])!r})", program)


def got(page: Page) -> list[tuple[Any, Any]]:
    """Collects questions and answers of the page from now on."""
    found = list[tuple[Any, Any]]()
    page.tab.on("requestfinished", lambda one: one.method == "POST" and found.append((one.post_data, one)))
    return found


@pytest.mark.parametrize(("tab", "values"), QUESTIONS, ids=IDS)
def test_the_lines_run_and_give_the_same(
    page: Page, folders: dict[str, Path], tab: str, values: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = got(page)
    page.open(tab, **values)
    shown = programs(page)
    path = page.tab.get_by_label("Question").locator("option").first.inner_text().split()[0]
    question, request = [one for one in answers if one[1].url.endswith(path)][-1]
    answer = request.response().json()
    by_curl = shell(shown["curl"])
    for name, value in by_curl.items():
        if json.loads(question).get("encoding") is None or name in ("model", "tokens", "layers", "heads", "shape"):
            near(value, answer[name], 1e-5)
    assert python(shown["http"])["answer"] == by_curl
    here = python(folder_named(shown["here"], folders))["answer"]
    if tab == "tokens":
        expected = [(one["id"], (one["start"], one["end"])) for one in by_curl["texts"][0]["tokens"]]
        assert list(zip(*here[0], strict=True)) == expected
    elif tab == "fill":
        near(by_curl["results"][0]["masks"], here, 1e-5)
    elif tab == "tasks":
        expected = by_curl.get("answers", by_curl.get("vectors"))
        near(expected, here.tolist() if "vectors" in by_curl else here, 1e-5)
    else:
        near({name: value for name, value in by_curl.items() if name != "model"}, json.loads(json.dumps(here)), 1e-5)
    assert ("openai" in shown) == ("vectors" in by_curl)
    if "openai" in shown:
        near(by_curl["vectors"], python(shown["openai"])["answer"], 1e-5)
    assert page.tab.title().startswith("Keel") and capsys.readouterr().out


def test_a_search_gives_its_scores_again(page: Page, folders: dict[str, Path]) -> None:
    lines = ["A sailor mends a sail.", 'It\'s "noodles"', "水手"]
    panel = page.open("search", model="minilm", query="repairs", lines="\n".join(lines), top="5")
    hits = {
        hit.locator(".hit-text").inner_text(): hit.locator(".hit-score").inner_text()
        for hit in panel.locator(".hit").all()
    }
    shown = programs(page)
    for name in ("http", "here", "openai"):
        scores = python(folder_named(shown[name], folders))["scores"]
        assert {line: f"{score:.3f}" for line, score in zip(lines, scores, strict=True)} == hits


def test_the_last_questions_are_kept_and_copied(open_page: Any, server: Any) -> None:
    page = open_page(server.url, permissions=["clipboard-read", "clipboard-write"])
    panel = page.open("api", "zh")
    assert panel.get_by_text("还没有提出过问题").is_visible()
    page.open("fill", text="The [MASK] sails.", model="bert")
    page.open("tokens", text="keelhauling", model="minilm")
    panel = page.open("api")
    options = panel.get_by_label("Question").locator("option").all_inner_texts()
    assert [" ".join(one.split()) for one in options] == [
        "/v1/tokens · minilm · keelhauling",
        "/v1/fill · bert · The [MASK] sails.",
    ]
    panel.get_by_label("Question").select_option("1")
    panel.get_by_role("button", name="Copy: curl").click()
    panel.get_by_text("Copied").wait_for()
    copied = page.tab.evaluate("navigator.clipboard.readText()")
    assert copied == panel.locator("code").first.text_content() and "The [MASK] sails." in copied
    panel.get_by_role("button", name="Ask now").click()
    page.settled()
    assert json.loads(panel.locator("pre").last.inner_text()) == shell(copied)
