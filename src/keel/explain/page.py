"""One self-contained page about one explanation: no scripts, nothing loaded from elsewhere, light and dark.

In: what a method returned. Out: the page as text: for attention all heads as small images and one of them large; for
heads and layers the map and a table; for attribution the words, coloured.

Notable choice: every text on the page is escaped; what a model reads may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from keel.explain.attention import AttentionMaps, HeadSummary
from keel.explain.attribution import Attribution
from keel.explain.encoded import thumbnails
from keel.explain.heads import HeadChanges
from keel.explain.layers import LayerAnswers
from keel.explain.pictures import asked_of, picture
from keel.explain.view import ALL, View
from keel.reporting.drawing import png_address, svg
from keel.reporting.heat_map import coloured
from keel.reporting.png import png_bytes

SMALL = 48  # pixels of a thumbnail, at most
LISTED = 20
STYLE = """
:root{color-scheme:light dark;--ink:#1c2733;--paper:#fff;--line:#dfe4ea;--muted:#5b6875}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaef;--paper:#15191e;--line:#333c46;--muted:#9aa7b4}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;margin:2rem auto;
padding:0 1rem;overflow-wrap:anywhere}
table{border-collapse:collapse;margin:1rem 0}
td,th{padding:.15rem .6rem;text-align:left;border-bottom:1px solid var(--line)}
.number{text-align:right;font-variant-numeric:tabular-nums}.muted{color:var(--muted)}
.wide{overflow-x:auto}.wide svg{max-width:none}
.small{border-spacing:3px;border-collapse:separate;display:block;overflow-x:auto}
.small img{width:56px;height:56px;image-rendering:pixelated;border:1px solid var(--line);display:block}
.small td,.small th{padding:0;border:0;font-weight:normal;font-size:.75rem;color:var(--muted)}
.words{font-size:1.2rem;line-height:2}.words span{border-radius:.2rem;padding:.1rem .15rem}
"""


def page(found: Any, view: View = ALL) -> str:
    """`view`: the attention that is drawn large; ALL: the head with the strongest link."""
    reading = found.reading
    facts = [("text", reading.text), *([("pair", reading.pair)] if reading.pair is not None else [])]
    facts.append(("model", reading.model_kind))
    if isinstance(found, AttentionMaps):
        title, parts = "Attention", _attention(found, view)
    elif isinstance(found, HeadChanges):
        title, parts = "What each head is worth", _heads(found)
    elif isinstance(found, LayerAnswers):
        title, parts = "What each layer would answer", _layers(found)
    elif isinstance(found, Attribution):
        title, parts = f"What the {found.answer['name']} rests on", _attribution(found)
    else:
        title, parts = "Shares of the layers", [_wide(svg(picture(found)))]
    head_of_page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
    )
    return "".join([head_of_page, _table((), facts), *parts, "</body></html>\n"])


def _wide(inner: str) -> str:
    return f'<div class="wide">{inner}</div>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Numbers are aligned to the right."""
    parts = ["<table>", "<tr>" if columns else "", *(f"<th>{escape(name)}</th>" for name in columns)]
    for row in rows:
        cells = [
            f'<td class="number">{cell:,.4g}</td>' if isinstance(cell, float | int) else f"<td>{escape(str(cell))}</td>"
            for cell in row
        ]
        parts += ["<tr>", *cells]
    return "".join([*parts, "</table>"])


def strongest(summaries: Sequence[HeadSummary]) -> tuple[int, int]:
    """The layer and the head with the strongest link between two different ordinary tokens."""
    best = max(summaries, key=lambda one: one.links[0][2] if one.links else 0.0)
    return best.layer, best.head


def _attention(found: AttentionMaps, view: View) -> list[str]:
    parts = []
    if found.cross is not None:
        parts += ["<h2>Cross-attention, mean over all layers and heads</h2>", _wide(svg(picture(found)))]
    if not len(found.weights):
        return parts
    summaries, title = found.summaries(), "One head" if view == ALL else "What was chosen"
    if view == ALL:
        view = View(*strongest(summaries))
    parts += [
        "<h2>Every head</h2><p>A row of a map is a token, its columns are the tokens that it attends to.</p>",
        _small(found.weights),
        f"<h2>{title}</h2>",
        _wide(svg(picture(found, view))),
        "<h2>The strongest links</h2>",
    ]
    labels = found.reading.labels
    rows = [
        (one.layer, one.head, one.entropy, one.special, ", ".join(link(labels, each) for each in one.links))
        for one in summaries
    ]
    return [*parts, _table(("layer", "head", "entropy (bits)", "on special tokens", "between words"), rows)]


def link(labels: Sequence[str], found: tuple[int, int, float]) -> str:
    """`it to animal 0.68`"""
    start, end, weight = found
    return f"{labels[start]} \u2192 {labels[end]} {weight:.2f}"


def _small(weights: np.ndarray) -> str:
    small = thumbnails(weights, SMALL)
    parts = ['<table class="small"><tr><th>', *(f"<th>{h + 1}" for h in range(small.shape[1]))]
    for n, row in enumerate(small):
        parts.append(f"<tr><th>layer {n + 1}")
        parts += [f'<td><img alt="layer {n + 1}, head {h + 1}" src="{_image(one)}">' for h, one in enumerate(row)]
    return "".join([*parts, "</table>"])


def _image(small: np.ndarray) -> str:
    return png_address(png_bytes(coloured(small.astype(np.float64))))


def _heads(found: HeadChanges) -> list[str]:
    rows = found.ranked()[:LISTED]
    note = f"With all heads the {found.answer['name']} is {found.value:.4g}."
    columns = ("layer", "head", found.measure)
    return [f"<p>{escape(note)}</p>", _wide(svg(picture(found))), _table(columns, rows)]


def _layers(found: LayerAnswers) -> list[str]:
    parts = [_wide(svg(picture(found)))]
    for number, one in enumerate(found.places, 1):
        parts.append(f"<h2>{asked_of(found, one, number)}: {escape(one.final)}, from layer {one.from_layer} on</h2>")
        rows = [
            (n, ", ".join(f"{guess.text} {guess.probability:.2f}" for guess in guesses), one.final_probability[n])
            for n, guesses in enumerate(one.guesses)
        ]
        parts.append(_table(("layer", "guesses", f"probability of {one.final}"), rows))
    return parts


def _attribution(found: Attribution) -> list[str]:
    most = float(np.abs(found.word_scores).max(initial=0.0)) or 1.0
    scores = dict(zip(found.reading.words, found.word_scores.tolist(), strict=True))
    parts = ['<p class="muted">Blue speaks for the answer, red against it.</p>']
    for segment, text in enumerate(found.reading.shown_texts):
        parts.append('<p class="words">')
        at = 0
        for word in (word for word in found.reading.words if word.segment == segment):
            colour = "29,99,196" if scores[word] >= 0 else "194,65,12"
            shade = f"rgba({colour},{abs(scores[word]) / most:.3f})"
            parts.append(escape(text[at : max(at, word.start)]))
            shown = escape(text[max(at, word.start) : word.end])
            parts.append(f'<span style="background:{shade}" title="{scores[word]:.4f}">{shown}</span>')
            at = max(at, word.end)
        parts += [escape(text[at:]), "</p>"]
    facts = [(name, value) for name, value in facts_of(found) if value is not None]
    ranked = sorted(scores.items(), key=lambda item: -abs(item[1]))
    return [*parts, _table((), facts), _table(("word", "score"), [(word.text, score) for word, score in ranked])]


def facts_of(found: Attribution) -> list[tuple[str, Any]]:
    """What belongs beside the scores."""
    return [
        ("by", found.by),
        (found.answer["name"], found.value),
        ("in place of words", found.baseline),
        ("score of the baseline", found.baseline_value),
        ("steps", found.steps),
        ("completeness gap", found.completeness_gap),
    ]
