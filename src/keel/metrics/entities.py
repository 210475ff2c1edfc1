"""Named entities: F1 of exact spans, as in conlleval (Tjong Kim Sang 2000) and seqeval.

In: one tag per word, "O" or a prefix and a type ("B-PER"); IOB1, IOB2, IOE and BIOES tags, also ill-formed sequences.
Out: spans (type, start, stop), stop exclusive, and precision, recall and F1: a span is correct if all three agree.

Notable choices
- Equal to seqeval's default (not strict) mode for every sequence of tags, so that scores are comparable with published
  ones. Ill-formed predictions are read leniently: an I- without a B- begins an entity, and so does a change of type.
- Entity boundaries follow from pairs of adjacent tags, not from a scheme, so no scheme has to be specified. A tag
  without a type has the type "_". An unknown prefix neither begins nor ends an entity, but a change of its type does.
- Division by zero gives 0, so F1 is 0 if there are no entities and none are predicted, as in seqeval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keel.metrics.classification import PrecisionRecallF1

EntitySpan = tuple[str, int, int]  # type, start, stop (exclusive)


@dataclass(frozen=True)
class EntityScores:
    overall: PrecisionRecallF1  # all types together: seqeval's "micro avg"
    types: dict[str, PrecisionRecallF1]  # in order of name; includes types that were only predicted (support 0)


def spans(tags: Sequence[str]) -> list[EntitySpan]:
    """The entities of one sentence: (type, start, stop)."""
    entities = []
    start = 0
    before, type_before = "O", "_"
    for place, tag in enumerate([*tags, "O"]):
        now, type_now = _parts(tag)
        new_type = type_before != type_now
        if before in "ES" or (before in "BI" and now in "BSO") or (before not in "O." and new_type):
            entities.append((type_before, start, place))
        if now in "BS" or (before in "ESO" and now in "EI") or (now not in "O." and new_type):
            start = place
        before, type_before = now, type_now
    return entities


def entity_scores(gold: Sequence[Sequence[str]], guessed: Sequence[Sequence[str]]) -> EntityScores:
    """The scores over all sentences; zeros without entities."""
    for number, (gold_tags, guessed_tags) in enumerate(zip(gold, guessed, strict=True)):
        if len(gold_tags) != len(guessed_tags):
            counts = f"{len(gold_tags)} gold tags and {len(guessed_tags)} predicted ones"
            raise ValueError(f"sentence {number} has {counts}")
    return _scores(_all_spans(gold), _all_spans(guessed))


def span_scores(gold: Sequence[set[EntitySpan]], guessed: Sequence[set[EntitySpan]]) -> EntityScores:
    """The same from the spans of each text."""
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
        PrecisionRecallF1.of(len(right), len(guessed), len(gold)),
        {
            type: PrecisionRecallF1.of(right_counts[type], guessed_counts[type], gold_counts[type])
            for type in sorted(gold_counts | guessed_counts)
        },
    )


def _parts(tag: str) -> tuple[str, str]:
    """Prefix and type: "B-PER" is ("B", "PER"), "B-a-b" is ("B", "a-b"), "B" is ("B", "_"); an empty tag is "O"."""
    prefix, rest = tag[:1] or "O", tag[1:]
    return prefix, rest.split("-", maxsplit=1)[-1] or "_"


def _all_spans(sentences: Sequence[Sequence[str]]) -> set[EntitySpan]:
    # All sentences joined by an "O", as in seqeval: positions then differ between sentences.
    return set(spans([tag for sentence in sentences for tag in [*sentence, "O"]]))
