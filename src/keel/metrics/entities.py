"""How well were entities found: F1 of whole spans, as conlleval (Tjong Kim Sang 2000) and seqeval count them.

In: one tag per word, "O" or a prefix and a type ("B-PER"); IOB1, IOB2, IOE and BIOES tags, also ill-formed ones.
Out: spans (type, start, stop), stop exclusive, and precision, recall and F1: a span is right if all three agree.

Notable choices
- Equal to seqeval's default (not strict) mode on every tag string, so that figures compare with published ones. What
  a tagger gets wrong is read kindly: an I- without a B- begins an entity, and so does a change of type.
- Reading follows where neighbouring tags allow a border, not a scheme, so no scheme has to be named. A tag without a
  type has the type "_". An unknown prefix neither begins nor ends an entity, but its type does.
- Zero divisions give 0, so nothing to find and nothing found is F1 0, as in seqeval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keel.metrics.classification import Found

Span = tuple[str, int, int]


@dataclass(frozen=True)
class EntityScores:
    overall: Found  # all types together: seqeval's "micro avg"
    types: dict[str, Found]  # in order of name; also types that were only guessed (support 0)


def spans(tags: Sequence[str]) -> list[Span]:
    """The entities of one sentence: (type, start, stop)."""
    found = []
    start = 0
    before, type_before = "O", "_"
    for place, tag in enumerate([*tags, "O"]):
        now, type_now = _parts(tag)
        new_type = type_before != type_now
        if before in "ES" or (before in "BI" and now in "BSO") or (before not in "O." and new_type):
            found.append((type_before, start, place))
        if now in "BS" or (before in "ESO" and now in "EI") or (now not in "O." and new_type):
            start = place
        before, type_before = now, type_now
    return found


def entity_scores(gold: Sequence[Sequence[str]], guessed: Sequence[Sequence[str]]) -> EntityScores:
    """The figures over all sentences; zeros of nothing."""
    for number, (one, other) in enumerate(zip(gold, guessed, strict=True)):
        if len(one) != len(other):
            raise ValueError(f"sentence {number} has {len(one)} gold tags and {len(other)} guessed ones")
    return _scores(_all_spans(gold), _all_spans(guessed))


def span_scores(gold: Sequence[set[Span]], guessed: Sequence[set[Span]]) -> EntityScores:
    """The same for spans that are already known, text by text."""
    return _scores(
        *(
            {(type, number, start, stop) for number, spans in enumerate(texts) for type, start, stop in spans}
            for texts in (gold, guessed)
        )
    )


def _scores(gold: set[Any], guessed: set[Any]) -> EntityScores:
    right = gold & guessed
    gold_counts, guessed_counts, right_counts = (Counter(span[0] for span in some) for some in (gold, guessed, right))
    return EntityScores(
        Found.of(len(right), len(guessed), len(gold)),
        {
            type: Found.of(right_counts[type], guessed_counts[type], gold_counts[type])
            for type in sorted(gold_counts | guessed_counts)
        },
    )


def _parts(tag: str) -> tuple[str, str]:
    """Prefix and type: "B-PER" is ("B", "PER"), "B-a-b" is ("B", "a-b"), "B" is ("B", "_"); no tag is "O"."""
    prefix, rest = tag[:1] or "O", tag[1:]
    return prefix, rest.split("-", maxsplit=1)[-1] or "_"


def _all_spans(sentences: Sequence[Sequence[str]]) -> set[Span]:
    # All sentences as one, with an "O" between, as seqeval does: it tells the sentences' spans apart.
    return set(spans([tag for sentence in sentences for tag in [*sentence, "O"]]))
