"""The tab Runs watches a real `keel pretrain`: its curves grow while it trains, only what is new is asked, a reload
continues where it was, and at the end there is the report."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browsing import Page
from served import wait_until


@pytest.fixture
def training(
    keel_command: list[str], corpus_path: Path, tiny_options: list[str], finished_run: Path
) -> Iterator[tuple[Path, Any]]:
    """A run below the server's --runs, and its process, which a test halts to look closely."""
    out = finished_run.parent / "watched"
    command = [*keel_command, "pretrain", "bert-tiny", "--corpus", str(corpus_path), *tiny_options, "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--set", "training.steps=1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield out, process
    process.kill()
    process.wait()


def entries(out: Path, kind: str) -> list[dict[str, Any]]:
    """Half of a line, which a halted process may leave, is none."""
    lines = (out / "metrics.jsonl").read_text().split("\n")[:-1]
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def last(page: Page) -> int:
    """The last step that is drawn."""
    return int(page.tab.locator("[data-last]").get_attribute("data-last") or 0)


def test_a_run_is_watched_while_it_trains(page: Page, training: tuple[Path, Any]) -> None:
    out, process = training
    wait_until(lambda: (out / "metrics.jsonl").is_file() and len(entries(out, "train")) > 5, 90)
    process.send_signal(signal.SIGSTOP)
    page.open("runs")
    row = page.tab.locator("tr.chosen")
    assert row.get_by_role("button", name="watched").is_visible()  # the newest
    assert row.get_by_text("running").is_visible()
    seen = last(page)
    assert seen == entries(out, "train")[-1]["step"]

    process.send_signal(signal.SIGCONT)
    wait_until(lambda: last(page) > seen, 60)
    process.send_signal(signal.SIGSTOP)
    seen = wait_until(lambda: last(page) == entries(out, "train")[-1]["step"] and last(page), 30)
    asked = [one for one in page.requests if "/metrics?after=" in one]
    assert not asked[-1].endswith("after=0") and page.requests.count("GET /v1/models") == 1
    page.tab.reload()
    page.settled()
    assert last(page) == seen

    process.send_signal(signal.SIGCONT)
    assert process.wait(120) == 0
    row.get_by_text("finished").wait_for()
    assert last(page) == 1000
    wait_until(lambda: page.said == "watched: finished", 10)

    loss = entries(out, "evaluation")[-1]["masked_lm.loss"]
    chart = page.tab.locator(".curve").filter(has_text="masked_lm.loss")
    assert f"held out {loss:.4g}" in " ".join(chart.locator(".curve-legend").inner_text().split())
    assert chart.locator("circle").count() == len(entries(out, "evaluation"))
    with page.tab.expect_popup() as popup:
        page.tab.get_by_role("link", name="Open the report").click()
    assert popup.value.locator("svg").count() > 3 and "masked_lm" in popup.value.content()


def test_a_run_is_chosen_in_chinese_and_stays_after_a_reload(page: Page, finished_run: Path) -> None:
    page.open("runs", "zh")
    page.tab.get_by_role("button", name="classifier", exact=True).click()
    page.tab.get_by_role("heading", name="classifier").wait_for()
    figures = page.tab.locator(".curve figcaption")
    figures.get_by_text("classify.accuracy").wait_for()
    page.tab.get_by_role("button", name="model", exact=True).click()
    figures.get_by_text("next_sentence.loss").wait_for()
    page.tab.get_by_label("横轴").select_option("tokens")
    address = page.hash
    page.tab.reload()
    page.settled()
    assert page.hash == address and "axis=tokens" in address
    train = entries(finished_run, "train")
    assert last(page) == train[-1]["step"]
    row = page.tab.locator("tr.chosen")
    assert "预训练" in row.inner_text() and "40 / 40" in row.inner_text() and "已完成" in row.inner_text()
    loss = page.tab.locator(".curve").filter(has_text="masked_lm.loss")
    box = loss.locator("svg").bounding_box()
    loss.locator("svg").hover(position={"x": box["width"] * 0.12, "y": box["height"] / 2})
    assert f"({train[0]['tokens']})" in loss.locator(".curve-legend").inner_text()


def test_a_log_that_begins_again_is_drawn_again(page: Page) -> None:
    """A resumed run repeats steps, and a folder may be used anew."""
    logs = [[(1, 5.0), (2, 4.0), (3, 3.0), (4, 9.0)], [(3, 2.5), (4, 2.0)], []]
    run = {"id": "a" * 16, "folder": "x", "kind": "pretraining", "name": "x", "state": "running", "step": 4}
    rest = {"planned": 9, "figure": "", "value": None, "seconds": None, "when": "", "resume": None, "report": False}

    def log(route: Any) -> None:
        found = logs.pop(0) if logs else []
        listed = [{"kind": "train", "step": step, "masked_lm.loss": loss} for step, loss in found]
        after = int(route.request.url.rpartition("=")[2])
        route.fulfill(json={"entries": listed, "next": after + len(listed)})

    page.tab.route("**/v1/runs", lambda one: one.fulfill(json={"enabled": True, "runs": [{**run, **rest}]}))
    page.tab.route("**/metrics?after=*", log)
    page.open("runs")
    line = page.tab.locator("path.curve-line.line")
    heights = [float(place.split()[1]) for place in (line.get_attribute("d") or "").lstrip("M ").split(" L ")]
    assert len(heights) == 4 and heights == sorted(heights)  # 5, 4, 2.5, 2: always further down


def test_what_was_drawn_stays_when_the_server_goes_away(page: Page) -> None:
    page.forgive("Failed to load resource")
    page.open("runs")
    drawn = page.tab.locator(".curve").count()
    page.tab.route("**/v1/runs", lambda route: route.abort())
    page.tab.get_by_role("alert").get_by_text("The server does not answer").wait_for()
    assert page.tab.locator(".curve").count() == drawn > 2
    page.tab.unroute("**/v1/runs")
    page.tab.get_by_role("alert").get_by_role("button", name="Try again").click()
    page.tab.get_by_role("alert").wait_for(state="detached")
