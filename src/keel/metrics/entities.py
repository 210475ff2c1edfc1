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


class EntityCounts:
    """Counts the entities of texts that arrive one by one."""

    def __init__(self) -> None:
        self._gold, self._guessed, self._right = Counter[str](), Counter[str](), Counter[str]()

    def add(self, gold: set[EntitySpan], guessed: set[EntitySpan]) -> None:
        """The gold and the predicted spans of one text."""
        for counts, some in ((self._gold, gold), (self._guessed, guessed), (self._right, gold & guessed)):
            counts.update(span[0] for span in some)

    def scores(self) -> EntityScores:
        """The scores over all texts; zeros without entities."""
        right, guessed, gold = self._right, self._guessed, self._gold
        return EntityScores(
            PrecisionRecallF1.of(right.total(), guessed.total(), gold.total()),
            {type: PrecisionRecallF1.of(right[type], guessed[type], gold[type]) for type in sorted(gold | guessed)},
        )


def _parts(tag: str) -> tuple[str, str]:
    """Prefix and type: "B-PER" is ("B", "PER"), "B-a-b" is ("B", "a-b"), "B" is ("B", "_"); an empty tag is "O"."""
    prefix, rest = tag[:1] or "O", tag[1:]
    return prefix, rest.split("-", maxsplit=1)[-1] or "_"
