"""The initial alphabet of a vocabulary: the characters of the training text, in a fixed order.

In: texts, and the normaliser and pre-tokenizer of the tokenizers library. Out: the characters that get an entry, and
those among them that also occur inside a word and therefore need a `##` entry.

Notable choices
- The library can collect the alphabet itself, but it numbers the `##` characters in the order of a randomly seeded hash
  map, and these numbers break ties between merges of equal frequency: two runs over the same text gave two
  vocabularies. Passing the complete alphabet in a fixed order makes training deterministic, at the price of one more
  cheap pass over the text.
- Counting here also guarantees the requested size: the library lets a large alphabet exceed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from keel.tokenizers.characters import CODE_POINTS, JOINS, VANISHES, Characters, code_points

BLOCK_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Alphabet:
    characters: list[str]  # by code point
    inside: list[str]  # those that also occur after the first character of a word
    left_out: int  # distinct characters that were too rare, or for which there was no room
    covered: float  # fraction of the text's characters that are in the alphabet
    crowded: bool  # whether characters were left out for lack of room


def blocks(texts: Iterable[str]) -> Iterator[str]:
    """Joins short texts into blocks of at least BLOCK_CHARACTERS, because a numpy call on a short text is all overhead.

    Not `batching.groups`: a block must reach that size, because `learn_words` uses the first one as a sample.
    """
    held: list[str] = []
    length = 0
    for text in texts:
        held.append(text)
        length += len(text)
        if length >= BLOCK_CHARACTERS:
            yield "\n".join(held)
            held, length = [], 0
    if held:
        yield "\n".join(held)


def find(texts: Iterable[str], tokenizer: Tokenizer, room: int, min_frequency: int, limit: int) -> Alphabet:
    """Reads all texts once. Keeps the most frequent characters: at most `limit`, which take at most `room` entries."""
    table = Characters(tokenizer)
    counts = np.zeros(CODE_POINTS, dtype=np.int64)
    inner = np.zeros(CODE_POINTS, dtype=np.int64)
    for block in blocks(texts):
        points = code_points(block)
        counts += np.bincount(points, minlength=CODE_POINTS)
        kinds = table.kinds(points)
        if (kinds == VANISHES).any():
            points, kinds = points[kinds != VANISHES], kinds[kinds != VANISHES]
        joined = (kinds[1:] == JOINS) & (kinds[:-1] == JOINS)
        inner += np.bincount(points[1:][joined], minlength=CODE_POINTS)
    return _choose(*_after_normalising(table.images, counts, inner), room, min_frequency, limit)


def _after_normalising(
    images: dict[int, list[str]], counts: np.ndarray, inner: np.ndarray
) -> tuple[dict[str, int], dict[str, int]]:
    """Transfers the counts of characters as written to the characters that normalisation turns them into."""
    total: dict[str, int] = {}
    inside: dict[str, int] = {}
    for point, words in images.items():
        count, within = int(counts[point]), int(inner[point])
        for word in words:
            for place, character in enumerate(word):
                total[character] = total.get(character, 0) + count
                if place or within:
                    inside[character] = inside.get(character, 0) + (count if place else within)
    return total, inside


def _choose(total: dict[str, int], inside: dict[str, int], room: int, min_frequency: int, limit: int) -> Alphabet:
    frequent = sorted((c for c in total if total[c] >= min_frequency), key=lambda c: (-total[c], c))
    needed = np.cumsum([1 + (character in inside) for character in frequent])
    fitting = int(np.searchsorted(needed, room, side="right"))
    chosen = sorted(frequent[: min(fitting, limit)])
    return Alphabet(
        chosen,
        [character for character in chosen if character in inside],
        len(total) - len(chosen),
        sum(total[character] for character in chosen) / max(1, sum(total.values())),
        fitting < min(len(frequent), limit),
    )
