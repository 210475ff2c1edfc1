"""Finds the words of a text, for labels on words.

In: text. Out: [start, stop) of each word: single Chinese characters; runs of letters and digits; every other visible
character by itself. BERT's tokenizer splits at the same places, so a word is always one or more complete tokens.
"""

from __future__ import annotations

import re
import unicodedata

# The ideographs that BERT's tokenizer separates.
IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f"
# What it treats as white space. It deletes other control characters, so they do not separate words.
BLANK = "\t\n\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHUNK = re.compile(f"[{IDEOGRAPH}]|[^{IDEOGRAPH}{BLANK}]+")


def word_spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for chunk in _CHUNK.finditer(text):
        start = chunk.start()
        for place in range(chunk.start(), chunk.end()):
            if _stands_alone(text[place]):
                if start < place:
                    spans.append((start, place))
                spans.append((place, place + 1))
                start = place + 1
        if start < chunk.end():
            spans.append((start, chunk.end()))
    return spans


def _stands_alone(character: str) -> bool:
    """Punctuation by the rules of BERT's tokenizer: every ASCII symbol, and the punctuation categories of Unicode."""
    if character.isascii():
        return not character.isalnum() and character.isprintable()
    return unicodedata.category(character).startswith("P")
