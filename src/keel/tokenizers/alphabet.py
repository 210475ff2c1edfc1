"""The characters a vocabulary starts from: counted in the training text, in a fixed order.

In: texts, and the tokenizers library's normaliser and splitter. Out: the characters worth an entry, and those among
them that also occur inside a word and so need a `##` entry.

Notable choices
- The library can collect the alphabet itself, but it meets the `##` characters in the order of a randomly seeded hash
  map, and merges of equal frequency are decided by those numbers: two runs over the same text gave two vocabularies.
  Handing it the whole alphabet in a fixed order makes training deterministic, for one more cheap pass over the text.
- Counting here also keeps the size that was asked for: the library lets a large alphabet overrun it.
- What the library does to a character is asked of the library, once per distinct character, not written down again.
  A character that only changes beside certain others is counted as if alone; that costs an entry at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tokenizers import Tokenizer

CODE_POINTS = 0x110000
BLOCK_CHARACTERS = 1_000_000
UNSEEN, VANISHES, SEPARATES, JOINS = 0, 1, 2, 3  # what a character does to the word it stands in


@dataclass(frozen=True)
class Alphabet:
    characters: list[str]  # by code point
    inside: list[str]  # those that also occur after the first character of a word
    left_out: int  # distinct characters that were too rare, or too many for the size
    covered: float  # share of all characters of the text that are among those kept
    crowded: bool  # whether characters were left out for want of room


def blocks(texts: Iterable[str]) -> Iterator[str]:
    """Joins short texts: numpy costs the same for a line as for a page."""
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


def code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def find(texts: Iterable[str], tokenizer: Tokenizer, room: int, min_frequency: int, limit: int) -> Alphabet:
    """Reads all texts once. At most `limit` characters, taking up at most `room` entries, the frequent ones first."""
    kinds = np.zeros(CODE_POINTS, dtype=np.uint8)
    images: dict[int, list[str]] = {}
    counts = np.zeros(CODE_POINTS, dtype=np.int64)
    inner = np.zeros(CODE_POINTS, dtype=np.int64)
    for block in blocks(texts):
        points = code_points(block)
        found = np.bincount(points, minlength=CODE_POINTS)
        counts += found
        for point in np.flatnonzero((found > 0) & (kinds == UNSEEN)):
            kinds[point], images[int(point)] = _image(chr(point), tokenizer)
        kind = kinds[points]
        if (kind == VANISHES).any():
            points, kind = points[kind != VANISHES], kind[kind != VANISHES]
        joined = (kind[1:] == JOINS) & (kind[:-1] == JOINS)
        inner += np.bincount(points[1:][joined], minlength=CODE_POINTS)
    return _choose(*_after_normalising(images, kinds, counts, inner), room, min_frequency, limit)


def _image(character: str, tokenizer: Tokenizer) -> tuple[int, list[str]]:
    """What becomes of a character between two letters: how it acts, and the pieces of words it turns into."""
    normalised = tokenizer.normalizer.normalize_str(f"a{character}a")
    words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalised)]
    if len(words) == 1:
        return (JOINS if len(words[0]) > 2 else VANISHES), [words[0][1:-1]]
    return SEPARATES, [words[0][1:], *words[1:-1], words[-1][:-1]]


def _after_normalising(
    images: dict[int, list[str]], kinds: np.ndarray, counts: np.ndarray, inner: np.ndarray
) -> tuple[dict[str, int], dict[str, int]]:
    """Moves the counts of characters as written to the characters they become."""
    total: dict[str, int] = {}
    inside: dict[str, int] = {}
    for point, pieces in images.items():
        count = int(counts[point])
        for piece in pieces:
            for place, character in enumerate(piece):
                total[character] = total.get(character, 0) + count
                within = count if place else int(inner[point]) if kinds[point] == JOINS else 0
                if within:
                    inside[character] = inside.get(character, 0) + within
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
