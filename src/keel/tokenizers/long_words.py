"""Bounds of training: the size of a vocabulary, and the length of a word that it is learned from.

In: a requested size; texts. Out: an error for sizes without sense; the same texts, with unbroken words of thousands of
characters cut.

Notable choice: each merge of BPE reads the whole of every word it occurs in, so that a word of 250,000 letters took 23
seconds, and time grows with the square of its length. Ordinary text has no words this long and is left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from keel.errors import UserError
from keel.tokenizers.characters import CHINESE_BLOCKS

LONGEST = 1000  # characters of a word
MOST = 10_000_000  # entries of a vocabulary: the library reserves memory for all of them
ASCII_MARKS = "!-/:-@\\[-`{-~"
SPACES = " \\t\\n\\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
CHINESE = "".join(f"{chr(first)}-{chr(last)}" for first, last in CHINESE_BLOCKS)
# Contains every word of BERT's splitting, which removes control characters, so they do not end a word here.
WORD = re.compile(f"[^{ASCII_MARKS}{SPACES}{CHINESE}]{{{LONGEST}}}")
# The same for GPT-2's, which splits texts into runs of letters, of digits, of other characters, and of white space.
RUN = re.compile(rf"\w{{{LONGEST}}}|(?:[^\w\s]|_){{{LONGEST}}}|\s{{{LONGEST}}}")


def check_size(size: int, fixed: int, what: str) -> None:
    """Raises unless a vocabulary has room besides its `fixed` entries, which are `what`, and is not absurdly large."""
    if size <= fixed:
        raise UserError(f"a vocabulary of {size} has no room besides {what}; increase it")
    if size > MOST:
        raise UserError(f"a vocabulary of {size} is too large; give a --vocab-size of at most {MOST:,}")


def cut_words(texts: Iterable[str]) -> Iterator[str]:
    """For kinds that split as BERT does, Chinese characters included: a space after every LONGEST characters."""
    for text in texts:
        yield WORD.sub(r"\g<0> ", text) if _has_long(text) else text


def cut_runs(texts: Iterable[str]) -> Iterator[str]:
    """The same for GPT-2's splitting. White space beyond LONGEST characters is dropped."""
    for text in texts:
        yield RUN.sub(lambda run: "" if run[0].isspace() else f"{run[0]} ", text) if _has_run(text) else text


def _has_long(text: str) -> bool:
    """Whether a long word is possible. Much faster than the pattern, which most texts then never meet."""
    return max(map(len, text.split(" "))) >= LONGEST


def _has_run(text: str) -> bool:
    return _has_long(text) or " " * (LONGEST // 2) in text
