"""The report of a run: self-contained, safe with any text, and written whatever files the run has left."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from keel.reporting.report import read_metrics, smooth, thin, write_report


def write_metrics(folder: Path, records: list[dict[str, Any]], tail: str = "") -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records) + tail)


def train(step: int, **figures: float) -> dict[str, Any]:
    base = {"kind": "train", "step": step, "elapsed": 0.5 * step, "tokens": 4096 * step, "loss": 9.0 / step}
    return base | {"learning_rate": 1e-4, "tokens_per_second": 8192} | figures


def evaluation(step: int, **figures: float) -> dict[str, Any]:
    return {"kind": "evaluation", "step": step, "loss": 2.0} | figures


def charts(page: str) -> list[str]:
    return re.findall(r'class="chart-title"[^>]*>([^<]*)<', page)


class Outside(HTMLParser):
    """Collects everything that would make a browser run or fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "img"):
            self.found.append(tag)
        for name, value in attrs:
            if name.startswith("on") or (name in ("src", "href", "action") and not (value or "").startswith("data:")):
                self.found.append(f"{tag} {name}={value}")


def test_a_loss_is_drawn_with_its_level_and_what_was_evaluated_is_said(tmp_path: Path) -> None:
    steps = [train(s, **{"masked_lm.loss": 7.0 - s}) for s in (1, 2, 3)]
    level = {"masked_lm.loss": 5.0, "masked_lm_without_context": 5.5, "plateau": True}
    write_metrics(tmp_path, [*steps, evaluation(2, **level, held_out_share=0.25), evaluation(3, **level)])
    page = write_report(tmp_path).read_text()
    assert charts(page) == ["Masked LM: loss", "Learning rate", "Speed"], "the level is no chart of its own"
    (line,) = re.findall(r'data-name="without context"><polyline points="([^"]*)"', page)
    places = [tuple(map(float, place.split(","))) for place in line.split()]
    assert len({height for _, height in places}) == 1 and places[0][0] < places[-1][0], "a horizontal line"
    assert "without context</text>" in page and "Only the last evaluation is on all of their rows." in page
    write_metrics(tmp_path, [*steps, evaluation(3, **level)])
    assert "Only the last evaluation" not in write_report(tmp_path).read_text()


def test_a_chart_for_every_objective_and_figure(tmp_path: Path) -> None:
    figures = {
        "masked_lm.loss": 3.0,
        "masked_lm.accuracy": 0.4,
        "next_sentence.loss": 0.5,
        "next_sentence.accuracy": 0.8,
    }
    write_metrics(tmp_path, [train(s, **figures) for s in (1, 2, 3)] + [evaluation(3, **figures)])
    page = write_report(tmp_path).read_text()
    assert charts(page) == [
        "Total loss",
        "Masked LM: loss",
        "Masked LM: accuracy",
        "Next sentence: loss",
        "Next sentence: accuracy",
        "Learning rate",
        "Speed",
    ]
    assert page.count('data-name="held out"') == 5


def test_one_objective_has_no_separate_total_and_a_new_one_needs_no_change(tmp_path: Path) -> None:
    write_metrics(tmp_path, [train(1, **{"replaced_token.loss": 0.3, "replaced_token.margin": 1.5})])
    assert charts(write_report(tmp_path).read_text()) == [
        "Replaced token: loss",
        "Replaced token: margin",
        "Learning rate",
        "Speed",
    ]


def test_an_objective_may_appear_late_or_only_held_out(tmp_path: Path) -> None:
    write_metrics(tmp_path, [train(1, **{"a.loss": 1.0}), train(2), evaluation(2, **{"b.accuracy": 0.5})])
    page = write_report(tmp_path).read_text()
    assert {"A: loss", "B: accuracy"} <= set(charts(page))


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    bad = "<script>alert('1')</script><img src=x onerror=y>\"&"
    write_metrics(tmp_path, [train(1, **{f"{bad}.loss": 1.0})])
    (tmp_path / "recipe.yaml").write_text(f"name: {bad}")
    fills = [{"text": bad, "before": bad, "after": [{"token": bad, "probability": 0.5}, bad]}]
    page = write_report(tmp_path, {"title": bad, bad: bad, "corpus": {bad: 1}}, fills).read_text()
    seen = Outside()
    seen.feed(page)
    assert seen.found == []
    assert "&lt;script&gt;" in page


def test_the_page_loads_no_external_resources(tmp_path: Path) -> None:
    write_metrics(tmp_path, [train(1, **{"a.loss": 1.0})])
    page = write_report(tmp_path).read_text()
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in page and "@import" not in page


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_counted_not_drawn(value: float, tmp_path: Path) -> None:
    records = [train(s, **{"a.loss": value if s == 2 else 1.0 / s}) for s in (1, 2, 3)]
    write_metrics(tmp_path, [*records, evaluation(3, **{"a.loss": value})])
    page = write_report(tmp_path).read_text()
    assert not re.search(r'(points|x|y|cx|cy|x1|y1)="[^"]*(nan|inf)', page)
    assert "not finite" in page
    assert f'<td class="figure">{value}</td>' in page


def test_one_point_no_evaluation_no_recipe(tmp_path: Path) -> None:
    write_metrics(tmp_path, [train(1, **{"a.loss": 1.0, "a.accuracy": 0.0})])
    page = write_report(tmp_path).read_text()
    assert "There was no held-out evaluation" in page
    assert "The recipe" not in page
    assert "<circle" in page


@pytest.mark.parametrize("content", [None, "", "\n\n", "not json\n", '{"step": 1}\n[1]\n3\n'])
def test_no_metrics_at_all_is_still_a_page(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    assert "No step was recorded" in write_report(tmp_path).read_text()


def test_a_killed_run_leaves_a_truncated_line_and_repeated_steps(tmp_path: Path) -> None:
    records = [train(s, loss=float(s)) for s in (1, 2, 3)] + [train(s, loss=10.0 * s) for s in (2, 3, 4)]
    write_metrics(tmp_path, records, tail='{"kind": "train", "st')
    found, skipped = read_metrics(tmp_path / "metrics.jsonl")
    assert [(r["step"], r["loss"]) for r in found] == [(1, 1.0), (2, 20.0), (3, 30.0), (4, 40.0)]
    assert skipped == 1


def test_smoothing_keeps_a_constant_and_stays_within_the_data() -> None:
    flat = [(float(n), 2.0) for n in range(500)]
    assert smooth(flat) == flat
    jagged = [(float(n), float(n % 2)) for n in range(1000)]
    smoothed = [y for _, y in smooth(jagged)]
    assert all(0 <= y <= 1 for y in smoothed)
    assert all(abs(y - 0.5) < 0.05 for y in smoothed[500:])


def test_thinning_keeps_the_ends_and_what_is_not_finite() -> None:
    dense = [(float(n), math.nan if n == 1234 else 1.0) for n in range(100_000)]
    kept = thin(dense)
    assert kept[0] == dense[0] and kept[-1] == dense[-1]
    assert dense[1234] in kept
    assert len(kept) <= 403


def test_how_to_use_can_be_copied_whatever_the_path(tmp_path: Path) -> None:
    import html
    import shlex

    folder = tmp_path / "it's my model"
    folder.mkdir()
    write_metrics(folder, [train(1)])
    text = 'She said "[MASK]".'
    page = write_report(folder, {}, [{"text": text, "before": "a", "after": "b"}]).read_text()
    command = html.unescape(re.search(r"<pre>(keel fill[^<]*)</pre>", page).group(1))  # type: ignore[union-attr]
    assert shlex.split(command) == ["keel", "fill", str(folder), text]
