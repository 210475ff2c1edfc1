"""Pictures of explanations, for papers and slides.

In: what a method returned. Out: a `Drawing`, which is written as SVG or PNG.

attention    a map from token x to token: of one layer and head, or the mean
heads        a map of layer x head: the change without the head
layers       a table of layer x guess (of several [MASK]: layer x [MASK]), shaded by probability
attribution  the text, each word shaded by its score; the answer to a question is framed
mix          a map of layer x place: the shares
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keel.errors import UserError
from keel.explain.attention import AttentionMaps
from keel.explain.attribution import Attribution
from keel.explain.heads import HeadChanges
from keel.explain.layers import LayerAnswers, PlaceAnswers
from keel.explain.mix import LayerShares
from keel.explain.reading import Word
from keel.explain.view import ALL, View
from keel.reporting.drawing import EDGE, MUTED, NEGATIVE, POSITIVE, Drawing, shortened, text_width
from keel.reporting.heat_map import heat_map

LINE, FONT, FAINT = 640, 15, 10  # pixels: of a line of words, of a word, of its score
DARKEST = 0.6  # the opacity behind the word with the largest score: text stays readable on it
SHOWN = 0.05  # scores of at least this share of the largest stand under their words
GUESS = 90  # pixels of the longest guess


def picture(found: Any, view: View = ALL) -> Drawing:
    """`view`: which part of the attention."""
    if isinstance(found, AttentionMaps):
        return _map(found, view) if view.start is None else _looks(found, view, view.start)
    if view != ALL:
        raise UserError("there are no layers, heads and words to choose, because this is no attention")
    if isinstance(found, HeadChanges):
        return _heads(found)
    if isinstance(found, Attribution):
        return _words(found)
    if isinstance(found, LayerAnswers):
        return _layers(found)
    assert isinstance(found, LayerShares)
    shares = np.array(list(found.shares.values())).T
    cells = [[f"{share:.2f}" for share in line] for line in shares.tolist()]
    return heat_map("Shares of the layers", _numbers(len(shares), 0), list(found.shares), shares, cells, "layer")


def _numbers(count: int, first: int = 1) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def _map(found: AttentionMaps, view: View) -> Drawing:
    cross = found.cross
    if cross is not None and view == ALL:
        return heat_map(f"Cross-attention: {cross.translation}", cross.written, cross.read, cross.mean)
    labels = found.reading.labels
    title = f"Attention, {_which(view)}"
    return heat_map(title, labels, labels, found.map(view.layer, view.head), None, "from", "to")


def _which(view: View) -> str:
    if view.layer is None:
        return "mean over all layers and heads" if view.head is None else f"head {view.head}, mean over the layers"
    return f"layer {view.layer}, {'mean over the heads' if view.head is None else f'head {view.head}'}"


def _looks(found: AttentionMaps, view: View, start: str) -> Drawing:
    """Of one word: to another word in every head, or to every token in every layer, or in every head of one layer."""
    if view.to is not None:
        weights = found.looks(start, view.to)
        cells = [[f"{weight:.2f}" if weight >= 0.005 else "" for weight in line] for line in weights.tolist()]
        title = f"How much \u201c{start}\u201d attends to \u201c{view.to}\u201d"
        return heat_map(title, _numbers(len(weights)), _numbers(len(weights[0])), weights, cells, "layer", "head")
    weights, title = found.looks(start), f"Where \u201c{start}\u201d looks"
    if view.layer is not None:
        found.map(view.layer, view.head)  # refuses what does not exist
        rows = [f"head {number}" for number in range(1, weights.shape[1] + 1)]
        chosen = weights[view.layer - 1]
        if view.head is not None:
            rows, chosen = rows[view.head - 1 : view.head], chosen[view.head - 1 : view.head]
        return heat_map(f"{title}, layer {view.layer}", rows, found.reading.labels, chosen)
    rows = [f"layer {number}" for number in range(1, len(weights) + 1)]
    if view.head is not None:
        found.map(None, view.head)
        return heat_map(f"{title}, head {view.head}", rows, found.reading.labels, weights[:, view.head - 1])
    return heat_map(f"{title}, mean over the heads", rows, found.reading.labels, weights.mean(1))


def _heads(found: HeadChanges) -> Drawing:
    layers, heads = found.changes.shape
    cells = [[f"{change:+.2f}".replace("-", "\u2212") for change in line] for line in found.changes.tolist()]
    cells = [["" if cell[1:] == "0.00" else cell for cell in line] for line in cells]
    title = f"{found.measure[:1].upper()}{found.measure[1:]}"
    return heat_map(title, _numbers(layers), _numbers(heads), found.changes, cells, "layer", "head")


def _layers(found: LayerAnswers) -> Drawing:
    """The last layer at the top, as models are drawn."""
    depth = len(found.places[0].guesses)
    rows = ["embeddings", *(f"layer {number}" for number in range(1, depth))][::-1]
    if len(found.places) == 1:
        (place,) = found.places
        shown = [[guess.text for guess in guesses] for guesses in place.guesses][::-1]
        chances = [[guess.probability for guess in guesses] for guesses in place.guesses][::-1]
        columns, axis = [f"{number}." for number in range(1, len(shown[0]) + 1)], "guesses"
        title = f"{asked_of(found, place, 1)}: what each layer would answer"
    else:
        shown = [[place.guesses[number][0].text for place in found.places] for number in range(depth)][::-1]
        chances = [[place.guesses[number][0].probability for place in found.places] for number in range(depth)][::-1]
        columns, axis = [asked_of(found, place, number) for number, place in enumerate(found.places, 1)], ""
        title = "What each layer would answer"
    cells = [[shortened(text, GUESS, 11) for text in line] for line in shown]
    return heat_map(f"{title}, shaded by its probability", rows, columns, np.array(chances), cells, "", axis)


def asked_of(found: LayerAnswers, place: PlaceAnswers, number: int) -> str:
    """What the layers were asked: the label, the next token, or a [MASK]."""
    if found.kind in ("label", "next token"):
        return f"The {found.kind}"
    return f"[MASK] {number}" if len(found.places) > 1 else "[MASK]"


def _words(found: Attribution) -> Drawing:
    drawing = Drawing(f"What the {found.answer['name']} rests on")
    y = drawing.heading() + FONT + 6
    scores = dict(zip(found.reading.words, found.word_scores.tolist(), strict=True))
    most = max((abs(score) for score in scores.values()), default=0.0) or 1.0
    for segment, text in enumerate(found.reading.shown_texts):
        x, end = float(EDGE), 0
        for word in (word for word in scores if word.segment == segment):
            shown = shortened(word.text, LINE - 10, FONT)
            score = f"{scores[word]:+.2f}".replace("-", "\u2212") if abs(scores[word]) >= SHOWN * most else ""
            width = max(text_width(shown, FONT) + 6, text_width(score, FAINT) + 2)
            between = text_width(" ".join(text[end : word.start].split()) or text[end : word.start][:1], FONT)
            if x > EDGE and x + between + width > EDGE + LINE:
                x, y = float(EDGE), y + 2.7 * FONT
            elif x > EDGE:
                x += max(between, 2)
            colour = POSITIVE if scores[word] >= 0 else NEGATIVE
            opacity = DARKEST * abs(scores[word]) / most
            hint = f"{word.text}: {scores[word]:+.4g}"
            drawing.box(x, y - FONT - 1, width, FONT + 7, colour, opacity, hint, _in_answer(found, word))
            drawing.label(x + width / 2, y, shown, FONT, "middle")
            drawing.label(x + width / 2, y + FONT + 3, score, FAINT, "middle", colour=MUTED)
            x, end = x + width, word.end
        y += 3.4 * FONT
    drawing.box(EDGE, y - 20, 12, 10, POSITIVE, DARKEST)
    drawing.label(EDGE + 17, y - 11, "speaks for it", FAINT, colour=MUTED)
    drawing.box(EDGE + 95, y - 20, 12, 10, NEGATIVE, DARKEST)
    drawing.label(EDGE + 112, y - 11, "speaks against it", FAINT, colour=MUTED)
    by = f"{found.by}, {found.baseline} in place of words"
    drawing.label(EDGE + 215, y - 11, by, FAINT, colour=MUTED)
    return drawing


def _in_answer(found: Attribution, word: Word) -> bool:
    """Whether a word is part of the span, or the word whose tag is explained."""
    start, end = found.answer.get("start"), found.answer.get("end")
    if start is None or end is None:
        return False
    segment = 1 if found.answer["kind"] == "span" else 0
    return word.segment == segment and word.start < end and start < word.end
