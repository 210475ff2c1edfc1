"""Writes one self-contained page about a training run.

In: the folder of a run (`metrics.jsonl`, `recipe.yaml`), facts about it, and examples of filled masks. Out:
`report.html` in that folder, with every curve as inline SVG: no scripts, no external resources, light and dark mode,
readable on a phone.

Notable choices
- The charts are made from the names in the log (`<objective>.<metric>`), so a new objective needs no change here.
- A run that was killed may have written a step twice, or half of the last line: the later record of a step wins, and
  lines that are not JSON are skipped and counted on the page.
- Training metrics are smoothed over about 1/40 of the run; held-out metrics are shown as measured.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keel.files.folders import write_file
from keel.report_tables import Plot, Table
from keel.reporting.svg import Point, Series, chart, compact, percent
from keel.values import Usage

REPORT = "report.html"
METRICS = "metrics.jsonl"
RECIPE = "recipe.yaml"
POINTS_DRAWN = 400
SMOOTHING = 40
LONGEST_CELL = 300  # characters of a text that a page shows

MetricsRecord = dict[str, Any]  # one line of metrics.jsonl


def write_report(
    folder: Path,
    facts: Mapping[str, Any] | None = None,
    fills: Sequence[Mapping[str, Any]] | None = None,
    details: Sequence[Table | Plot] = (),
    figures: Mapping[str, float] | None = None,
    answers: str = "",
    usage: Usage | None = None,
    use: tuple[str, str] | None = None,
) -> Path:
    """Writes `report.html`.

    `facts` are shown in the given order; the fact `title` is the page's title. `fills`: text, and predictions before
    and after training. `details` and `figures` come from a task. `answers` is the folder of a model that makes
    predictions, and `usage` an example input for it: on the command line, and in Python. `use` is for models with
    another purpose: a verb with its arguments, and a line of Python; None: the model fills masks.
    """
    facts = dict(facts or {})
    records, skipped = read_metrics(folder / METRICS)
    train = [r for r in records if r.get("kind") == "train"]
    held_out = [r for r in records if r.get("kind") == "evaluation"]
    recipe = folder / RECIPE
    ask = str(fills[0]["text"]) if fills else "The capital of France is [MASK]."
    model = answers or str(folder)
    return _write_page(
        folder,
        title=str(facts.pop("title", folder.name)),
        tiles=[(_words(name), _figure(name, value)) for name, value in (figures or {}).items()]
        or _tiles(train, held_out),
        facts=facts,
        charts=charts(train, held_out),
        table=_last_figures(train, held_out),
        evaluated=bool(held_out),
        partly=any("held_out_share" in record for record in held_out),
        fills=[(str(f["text"]), _answers(f["before"]), _answers(f["after"])) for f in fills or []],
        recipe=recipe.read_text(encoding="utf-8") if recipe.is_file() else "",
        plots=[_plot(detail) for detail in details if isinstance(detail, Plot) and detail.points],
        tables=[detail for detail in details if isinstance(detail, Table)],
        command=_command(model, ask, answers, usage, use),
        python=(
            json.dumps(model, ensure_ascii=False),
            (usage.python if usage else "") or json.dumps(ask, ensure_ascii=False),
        ),
        python_line=use[1] if use else "",
        predicts=bool(answers),
        skipped=skipped,
    )


def _command(model: str, ask: str, answers: str, usage: Usage | None, use: tuple[str, str] | None) -> str:
    if use:
        verb, _, rest = use[0].partition(" ")
        return f"keel {verb} {shlex.quote(model)} {rest}".rstrip()
    named = shlex.quote(model)
    if answers:
        return f"keel predict {named} {usage.command if usage else ''}".rstrip()
    return f"keel fill {named} {shlex.quote(ask)}"


def write_comparison(
    folder: Path,
    title: str,
    drawings: Sequence[tuple[str, Sequence[Series], str, str]],
    tables: Sequence[Table],
    facts: Mapping[str, Any],
) -> Path:
    """Writes the page of a comparison. `drawings`: title, series, and labels of the two axes."""
    drawn = [
        chart(name, [replace(s, points=thin(s.points)) for s in series], x, y, x_zero=True)
        for name, series, x, y in drawings
    ]
    return _write_page(folder, title=title, charts=drawn, tables=tables, facts=facts, compares=True)


def _write_page(
    folder: Path,
    *,
    facts: Mapping[str, Any],
    charts: Sequence[str],
    tables: Sequence[Table],
    plots: Sequence[str] = (),
    **parts: Any,
) -> Path:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(Path(__file__).with_name(REPORT).read_text(encoding="utf-8"))
    page = template.render(
        EMPTY
        | {
            "facts": [(_words(name), _value(value)) for name, value in facts.items() if value is not None],
            "charts": [Markup(c) for c in charts],
            "plots": [Markup(p) for p in plots],
            "tables": [_table(table) for table in tables if table.rows],
        }
        | parts
    )
    write_file(folder / REPORT, page)
    return folder / REPORT


# The parts of a page that are optional.
EMPTY: dict[str, Any] = {"tiles": [], "table": [], "evaluated": False, "fills": [], "recipe": "", "command": ""}
EMPTY |= {"python": ("", ""), "python_line": "", "predicts": True, "partly": False, "skipped": 0, "compares": False}


def _plot(plot: Plot) -> str:
    series = [Series("measured", plot.points, "dots")]
    if plot.diagonal:
        values = [value for point in plot.points for value in point]
        ends = (0.0, 1.0) if max(values) <= 1 and min(values) >= 0 else (min(values), max(values))
        series.insert(0, Series("perfect", [(end, end) for end in ends], "faint", colour=1))
    return chart(plot.title, series, plot.x_label, plot.y_label, x_zero=True, y_zero=True)


def _table(table: Table) -> dict[str, Any]:
    """Cells as text; in a matrix each number also has its share of the row, between 0 and 1, for shading."""
    rows = []
    for row in table.rows:
        total = sum(cell for cell in row[1:] if _is_number(cell)) if table.matrix else 0
        cells = [(_cell(cell), _is_number(cell), cell / total if total and _is_number(cell) else 0.0) for cell in row]
        rows.append(cells)
    columns = [(_breakable(name), is_figure) for name, (_, is_figure, _) in zip(table.columns, rows[0], strict=True)]
    return {"title": table.title, "columns": columns, "rows": rows, "note": table.note}


def _breakable(name: str) -> Any:
    """The name of a metric, with line breaks allowed after dots and underscores."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([._])(?=\w)", r"\1<wbr>", str(escape(name))))


def _cell(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.3f}"
    text = f"{cell:,}" if isinstance(cell, int) else str(cell).replace(" \u00b1 ", "\u00a0\u00b1\u00a0")
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "\u2026"


def read_metrics(path: Path) -> tuple[list[MetricsRecord], int]:
    """The records in order of step (the last one of each kind and step), and how many lines could not be read."""
    latest: dict[tuple[str, float], MetricsRecord] = {}
    skipped = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
            latest[str(record["kind"]), float(record["step"])] = record
        except (ValueError, KeyError, TypeError):
            skipped += bool(line.strip())
    return [latest[key] for key in sorted(latest, key=lambda key: key[1])], skipped


def charts(train: Sequence[MetricsRecord], held_out: Sequence[MetricsRecord]) -> list[str]:
    """One chart per objective and metric, then the learning rate and the speed. A loss that has a level to get below,
    `<objective>_without_context` in the log, is drawn with it."""
    names = list(dict.fromkeys(n for r in (*train, *held_out) for n, v in r.items() if "." in n and _is_number(v)))
    if len({n.partition(".")[0] for n in names}) > 1:
        names.insert(0, "loss")
    drawn = []
    for name in names:
        is_share = name.endswith("accuracy")
        raw, measured = points(train, name), points(held_out, name)
        series = [Series("training", thin(raw), "faint"), Series("training", thin(smooth(raw)))]
        if measured:
            series.append(Series("held out", measured, "marks", colour=1))
        if level := points(held_out, name.replace(".loss", "_without_context")):
            series.append(Series("without context", [(0.0, level[0][1]), *level], "dashed", colour=2))
        unit = "share correct" if is_share else "nats" if name.endswith("loss") else ""
        drawn.append(chart(_title(name), series, "step", unit, y_format=percent if is_share else compact, x_zero=True))
    for name, title, unit in (("learning_rate", "Learning rate", ""), ("tokens_per_second", "Speed", "tokens/s")):
        if curve := points(train, name):
            drawn.append(chart(title, [Series(title.lower(), thin(curve))], "step", unit, x_zero=True, y_zero=True))
    return drawn


def points(records: Sequence[MetricsRecord], name: str) -> list[Point]:
    return [(float(r["step"]), float(r[name])) for r in records if _is_number(r.get(name))]


def smooth(raw: Sequence[Point]) -> list[Point]:
    """A running mean over 1/SMOOTHING of the run, shorter at the start, where a long one would lag behind the falling
    loss. Values that are not finite are kept as gaps and not averaged."""
    smoothed: list[Point] = []
    mean, seen = 0.0, 0
    for x, y in raw:
        if math.isfinite(y):
            seen += 1
            mean += (y - mean) / max(1.0, min(len(raw) / SMOOTHING, seen / 5))
            smoothed.append((x, mean))
        else:
            smoothed.append((x, y))
    return smoothed


def thin(dense: Sequence[Point], limit: int = POINTS_DRAWN) -> list[Point]:
    """At most about `limit` points: every n-th, the last one, and all that are not finite, which must not be hidden."""
    stride = max(1, math.ceil(len(dense) / limit))
    last = len(dense) - 1
    return [p for n, p in enumerate(dense) if n % stride == 0 or n == last or not math.isfinite(p[1])]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tiles(train: Sequence[MetricsRecord], held_out: Sequence[MetricsRecord]) -> list[tuple[str, str]]:
    """The most important numbers of the run."""
    tiles = []
    for name, value in (held_out[-1] if held_out else {}).items():
        if "." in name and _is_number(value):
            tiles.append((f"{_title(name)}, held out", _figure(name, value)))
    last = max((*train[-1:], *held_out[-1:]), key=lambda record: record["step"], default={})
    tiles += [(name, _count(last[key])) for key, name in (("step", "steps"), ("tokens", "tokens")) if key in last]
    if _is_number(last.get("elapsed")):
        tiles.append(("time", _duration(last["elapsed"])))
    if speeds := sorted(v for _, v in points(train, "tokens_per_second") if math.isfinite(v)):
        tiles.append(("tokens/s, median", _count(speeds[len(speeds) // 2])))
    return tiles


def _last_figures(train: Sequence[MetricsRecord], held_out: Sequence[MetricsRecord]) -> list[tuple[str, str, str, str]]:
    """Name, last value, best value and its step: of held-out metrics, or of training metrics if there are none."""
    records = held_out or train
    rows = []
    for name in dict.fromkeys(n for r in records for n in r if n == "loss" or "." in n):
        curve = points(records, name)
        finite = [p for p in curve if math.isfinite(p[1])]
        if curve:
            pick = min if name.endswith(("loss", "error")) else max
            step, best = pick(finite, key=lambda p: p[1]) if finite else curve[-1]
            rows.append((_title(name), _figure(name, curve[-1][1]), _figure(name, best), f"{step:,.0f}"))
    return rows


def _count(value: float) -> str:
    return f"{value:,.0f}" if abs(value) < 1e6 else compact(value)


def _figure(name: str, value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{100 * value:.1f}\u00a0%" if name.endswith("accuracy") else f"{value:.4g}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(k))} {_value(v)}" for k, v in value.items())
    return ", ".join(map(_value, value)) if isinstance(value, list | tuple) else str(value)


def _answers(answers: Any) -> str:
    """Answers as text: a string unchanged, or a ranked list of strings or of {token, probability}."""
    if isinstance(answers, str):
        return answers
    shown = []
    for answer in answers:
        if isinstance(answer, Mapping):
            chance = answer.get("probability")
            shown.append(str(answer["token"]) + ("" if chance is None else f" ({100 * chance:.0f}\u00a0%)"))
        else:
            shown.append(str(answer))
    return ", ".join(shown)


def _title(name: str) -> str:
    objective, _, figure = name.partition(".")
    return f"{_words(objective)}: {_words(figure).lower()}" if figure else f"Total {_words(objective).lower()}"


def _words(name: str) -> str:
    text = " ".join("LM" if part == "lm" else part for part in name.replace("_", " ").split())
    return text[:1].upper() + text[1:]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
