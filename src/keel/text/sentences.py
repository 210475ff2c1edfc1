"""Splits documents into sentences: English, Chinese, and mixtures of both.

In: text. Out: its sentences in order, without the white space around them; no other character is lost.

A newline always ends a sentence. `. ! ?` end one before white space, unless a lower-case letter follows or the word
before is an abbreviation; `。！？；` and `…` end one immediately. Closing quotes and brackets stay with the stop.

Notable choices
- Rules instead of a model: this runs over every byte of a corpus, and a wrong split does little harm to a training row.
  One regular expression finds the candidates; only these (one in some hundred characters) are examined in Python.
- Abbreviations that may also end a sentence (U.S., Inc., initials) end one only before a word that commonly starts one.
"""

from __future__ import annotations

import re

LONGEST = 2000  # characters; longer sentences (tables, logs, text without punctuation) are cut at white space

_CHINESE = "。！？；｡"
_CLOSING = "\"'”’»)\\]}』」）】》〉］｝"
_OPENING = "\"'“‘«([{『「（【《〈"
_RUN = f"[.!?…{_CHINESE}{_CLOSING}]*+"
# A Chinese stop; or another stop before white space (but not before a lower-case letter) or before a wide character.
# The last alternative skips a run of stops that ends no sentence, up to the next Chinese stop: if every stop in it were
# tried, a long run would take quadratic time.
_STOP = re.compile(
    rf"[.!?…{_CHINESE}](?:(?<=[{_CHINESE}]){_RUN}\s*+|{_RUN}(?:\s++(?![a-z])|(?=[^\x00-\u2e7f])|\Z)"
    rf"|(?<=[.!?…])[.!?…{_CLOSING}]++(?P<none>))"
)
_NEXT_WORD = re.compile(rf"[{re.escape(_OPENING)}]*(\w*)")

_NEVER, _BEFORE_NUMBERS, _MAYBE = 1, 2, 3
_ABBREVIATIONS = {
    word: kind
    for kind, words in {
        _NEVER: """Mr Mrs Ms Dr Prof Rev Fr Gen Col Maj Capt Cmdr Lt Sgt Cpl Adm Gov Sen Rep Hon Pres St Mt Ft Messrs
            Mme Mlle e.g i.e E.g I.e cf Cf viz vs v al Fig Figs fig figs Eq Eqs Sec Ch Vol Vols vol vols pp p ed eds
            trans ca c b d r approx Approx""",
        _BEFORE_NUMBERS: "No Nos no nos Art Pt",
        _MAYBE: """etc Inc Ltd Co Corp Bros Jr Sr Ph.D Dept Univ Est Ave Blvd Rd Jan Feb Mar Apr Jun Jul Aug Sep Sept
            Oct Nov Dec""",
    }.items()
    for word in words.split()
}
_LONGEST_ABBREVIATION = max(map(len, _ABBREVIATIONS))
_STARTERS = frozenset(
    word
    for words in (
        "The This That These Those It Its He His She Her They Their We Our I You Your There Here A An One Two",
        "In On At By For From With As After Before When While Although Though However But And Or So If Since During",
        "Another Some Many Most All Both Each Other To What Who Why How Where Later Then Also",
    )
    for word in words.split()
)


def split(text: str) -> list[str]:
    """The sentences of a text."""
    sentences: list[str] = []
    for line in text.splitlines():
        start = 0
        for match in _STOP.finditer(line):
            stop, end = match.span()
            if match.lastgroup:  # "none"
                continue
            if line[stop] == "." and _abbreviated(line, start, stop, end):
                continue
            sentences.append(line[start:end].strip())
            start = end
        if rest := line[start:].strip():
            sentences.append(rest)
    if sentences and len(max(sentences, key=len)) > LONGEST:
        return [part for sentence in sentences for part in _shorten(sentence)]
    return sentences


def _abbreviated(line: str, start: int, stop: int, end: int) -> bool:
    """Whether the full stop at `stop` belongs to the word before it and does not end the sentence at `end`."""
    if end == stop + 1 or line[stop + 1] in ".!?…":  # end of line or a wide character (3.中); an ellipsis
        return end == stop + 1 < len(line)
    begin = max(start, line.rfind(" ", start, stop) + 1)
    if stop - begin > _LONGEST_ABBREVIATION + 2:  # the common case: too long for an abbreviation
        return False
    word = line[begin:stop].lstrip(_OPENING)
    if word.isdecimal():  # `1. Introduction` at the start of a sentence is a number, not an end
        return len(word) <= 3 and not line[start : stop - len(word)].strip()
    kind = _ABBREVIATIONS.get(word, 0)
    if not kind and ("." in word or (len(word) == 1 and word.isupper())):  # U.S, J
        kind = _MAYBE
    if kind in (0, _NEVER):
        return kind == _NEVER
    after = _NEXT_WORD.match(line, end)
    next_word = after[1] if after else ""
    return next_word[:1].isdecimal() if kind == _BEFORE_NUMBERS else next_word not in _STARTERS


def _shorten(sentence: str) -> list[str]:
    """Cuts at the last white space before LONGEST characters, or exactly there if there is none."""
    parts, start = [], 0
    while len(sentence) - start > LONGEST:
        space = max(sentence.rfind(sign, start + 1, start + LONGEST + 1) for sign in " \t\u3000\u00a0")
        cut = space if space > start else start + LONGEST
        parts.append(sentence[start:cut].rstrip())
        start = cut
        while sentence[start].isspace():  # ends, because a sentence does not end with white space
            start += 1
    return [*parts, sentence[start:]]
