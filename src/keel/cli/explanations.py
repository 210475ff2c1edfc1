"""Explanations as tables, for `keel explain`.

In: what a method returned, and which part of the attention is shown. Out: tables on stdout.
"""

from __future__ import annotations

from typing import Any

import typer

from keel.cli import common
from keel.console import clean
from keel.explain.view import View

BAR = 20  # characters of the longest bar
LISTED = 20  # heads in a table that is ordered by them


def print_explanation(found: Any, view: View) -> None:
    from keel.explain.attention import AttentionMaps
    from keel.explain.attribution import Attribution
    from keel.explain.heads import HeadChanges
    from keel.explain.layers import LayerAnswers

    if isinstance(found, AttentionMaps):
        _print_attention(found, view)
    elif isinstance(found, HeadChanges):
        typer.echo(clean(f"with all heads, the {found.answer['name']} is {found.value:.4g}"))
        rows = [(n, h, f"{change:+.4f}") for n, h, change in found.ranked()[:LISTED]]
        common.print_table(found.measure, ("layer", "head", "change"), rows, right=(0, 1, 2))
    elif isinstance(found, LayerAnswers):
        _print_layers(found)
    elif isinstance(found, Attribution):
        _print_attribution(found)
    else:
        rows = [(n, place, f"{s:.3f}") for place, shares in found.shares.items() for n, s in enumerate(shares)]
        common.print_table("no attention; the shares of the layers", ("layer", "place", "share"), rows, right=(0, 2))


def _print_attention(found: Any, view: View) -> None:
    if found.cross is not None:
        best = found.cross.mean.argmax(1)
        rows = [(name, found.cross.read[n]) for name, n in zip(found.cross.written, best, strict=True)]
        common.print_table("cross-attention: each token looks at", ("translation", "source"), rows)
        if not len(found.weights):
            return
    if view.start is not None:
        _print_looks(found, view, view.start)
    elif view.layer is not None and view.head is not None:
        labels = found.reading.labels
        rows = [(name, _most(labels, row)) for name, row in zip(labels, found.map(*view[:2]), strict=True)]
        common.print_table(f"layer {view.layer}, head {view.head}: each token looks at", ("token", "tokens"), rows)
    else:
        _print_heads(found, view)


def _print_heads(found: Any, view: View) -> None:
    from keel.explain.page import link

    lines = [
        (
            one.layer,
            one.head,
            f"{one.entropy:.2f}",
            common.percent(one.special),
            ", ".join(link(found.reading.labels, x) for x in one.links),
        )
        for one in found.summaries(view.layer, view.head)
    ]
    columns = ("layer", "head", "entropy (bits)", "on special", "strongest links between words")
    common.print_table("attention", columns, lines, right=(0, 1, 2, 3))


def _print_looks(found: Any, view: View, start: str) -> None:
    """The heads in their order with what the word looks at, or those that look most at a word."""
    places = [(one.layer, one.head) for one in found.summaries(view.layer, view.head, links=0)]
    weights = found.looks(start)
    columns: tuple[str, ...] = ("layer", "head", "tokens")
    if view.to is None:
        rows = [(n, h, _most(found.reading.labels, weights[n - 1, h - 1])) for n, h in places]
        common.print_table(f"{start} looks at", columns, rows, right=(0, 1))
        return
    shares = found.looks(start, view.to)
    places.sort(key=lambda place: -shares[place[0] - 1, place[1] - 1])
    ranked = [
        (n, h, f"{shares[n - 1, h - 1]:.3f}", _most(found.reading.labels, weights[n - 1, h - 1]))
        for n, h in places[:LISTED]
    ]
    columns = ("layer", "head", f"{start} to {view.to}", f"{start} looks at")
    common.print_table(f"heads in which {start} looks most at {view.to}", columns, ranked, right=(0, 1, 2))


def _most(labels: list[str], row: Any) -> str:
    return ", ".join(f"{labels[n]} {row[n]:.2f}" for n in (-row).argsort(kind="stable")[:4])


def _print_layers(found: Any) -> None:
    from keel.explain.pictures import asked_of

    for number, one in enumerate(found.places, 1):
        title = f"{asked_of(found, one, number)}: {one.final}, first from layer {one.from_layer} on"
        rows = [
            (n, common.percent(one.final_probability[n]), ", ".join(guess.text for guess in guesses))
            for n, guesses in enumerate(one.guesses)
        ]
        common.print_table(title, ("layer", f"chance of {one.final}", "guesses"), rows, right=(0, 1))


def _print_attribution(found: Any) -> None:
    most = max((abs(float(score)) for score in found.word_scores), default=0.0) or 1.0
    rows = []
    for word, score in zip(found.reading.words, found.word_scores.tolist(), strict=True):
        rows.append((word.text, f"{score:+.4f}", ("+" if score >= 0 else "-") * round(BAR * abs(score) / most)))
    title = f"{found.answer['name']}: {found.value:.4g}; + speaks for it, - against it"
    common.print_table(title, ("word", "score", ""), rows, right=(1,))
    if found.steps is None:
        how = f"by {found.by}: each word in turn is {found.baseline}"
    else:
        how = (
            f"by {found.by} in {found.steps} steps from {found.baseline} in place of words ({found.baseline_value:.4g})"
            f"; their sum is the difference within {common.percent(found.completeness_gap)}"
        )
    typer.echo(clean(how))
