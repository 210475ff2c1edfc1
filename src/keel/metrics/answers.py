"""Question answering: exact match and F1 as computed by the official scripts of SQuAD and CMRC 2018.

In: the accepted answers and the predicted one, as strings; "" means no answer. Out: fractions, not percent.

SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): lower case, without punctuation, articles and extra white space; F1 of
the two bags of words. CMRC 2018 (Cui et al. 2019), for Chinese: lower case, without the punctuation its script lists;
F1 of the longest common substring of units, where a unit is a Chinese character, a Latin word or a number.

Notable choices
- One set of rules for both versions of SQuAD. They differ only if nothing is left of both answers ("The"): 1.1 gives
  such a pair F1 0, 2.0 and Keel give 1.
- CMRC's script gives two empty answers F1 0. Keel gives 1, as SQuAD 2.0 does, because a correct "no answer" is correct.
- CMRC's script splits Latin text with NLTK. `_UNIT` implements those of its rules that matter for short answers;
  contractions ("don't": two units in NLTK, one here), quotes and ellipses differ.
- The no-answer threshold is found by the official search, with two fixes; see `no_answer_threshold`.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

import numpy as np
from numpy.typing import ArrayLike

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# The list of CMRC's script. It covers neither all ASCII nor all Chinese punctuation: "," and "…" are kept.
_NO_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_UNIT = re.compile(
    r"""
    [\u4e00-\u9fa5]                                 # a Chinese character
    | [;@\#$%&?!()\[\]{}<>"—–]                      # symbols that are always units
    | (?: [^\s\u4e00-\u9fa5;@\#$%&?!()\[\]{}<>"—–,.]
        | ,(?=\d)                                   # 1,000
        | \.(?!\s*(?:$|[\u4e00-\u9fa5])) )+          # 3.5, node.js, dr. who; not at the end
    | [,.]
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class AnswerScore:
    exact: float
    f1: float


@dataclass(frozen=True)
class Threshold:
    """A span is predicted as the answer if its margin over "no answer" is at least `margin`."""

    margin: float
    exact: float  # mean exact match and mean F1 at this threshold
    f1: float


def squad(golds: Sequence[str], guess: str) -> AnswerScore:
    """The best score over the accepted answers. None, or only ones like "the", means that there is no answer."""
    accepted = [gold for gold in golds if normalise(gold)] or [""]
    return AnswerScore(max(exact(gold, guess) for gold in accepted), max(f1(gold, guess) for gold in accepted))


def exact(gold: str, guess: str) -> float:
    return float(normalise(gold) == normalise(guess))


def f1(gold: str, guess: str) -> float:
    gold_words, guessed_words = normalise(gold).split(), normalise(guess).split()
    common = Counter(gold_words) & Counter(guessed_words)
    return _f1(common.total(), len(gold_words), len(guessed_words))


def normalise(answer: str) -> str:
    """SQuAD's normalisation. Punctuation is removed before articles: "a-b" becomes "ab", "(a) b" becomes "b"."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def cmrc(golds: Sequence[str], guess: str) -> AnswerScore:
    """The best score over the accepted answers. None means that there is no answer."""
    accepted = golds or [""]
    return AnswerScore(
        max(chinese_exact(gold, guess) for gold in accepted), max(chinese_f1(gold, guess) for gold in accepted)
    )


def chinese_exact(gold: str, guess: str) -> float:
    return float(_without_punctuation(gold) == _without_punctuation(guess))


def chinese_f1(gold: str, guess: str) -> float:
    gold_units, guessed_units = chinese_units(gold), chinese_units(guess)
    return _f1(_longest_common_run(gold_units, guessed_units), len(gold_units), len(guessed_units))


def chinese_units(answer: str) -> list[str]:
    """The units that CMRC counts. Punctuation is removed first, so "2018-05" is one unit, "201805"."""
    return _UNIT.findall(_without_punctuation(answer))


def no_answer_threshold(margins: ArrayLike, spans: Sequence[AnswerScore], nulls: Sequence[AnswerScore]) -> Threshold:
    """The threshold with the highest mean F1, by the search of SQuAD 2.0's script; nan without questions.

    `margins`: per question, the score of the best span minus that of "no answer". `spans`, `nulls`: the metrics of the
    question if it is answered with that span, or with "". (The script's own scores have the opposite sign: null minus
    span.)

    Among equally good thresholds the first wins, as in the script, which starts with no question answered: the one with
    the highest margin, which answers the fewest questions. Two fixes: the threshold never separates equal margins (the
    script may stop between them, and then reports an F1 that no threshold attains), and if it is best to answer
    nothing, the margin is infinite (the script returns 0, which answers every question with a positive margin).
    """
    if not len(spans):
        return Threshold(nan, nan, nan)
    margins = np.asarray(margins, dtype=np.float64)
    order = np.argsort(-margins, kind="stable")
    cuts = np.append(inf, margins[order])
    last_of_equals = np.append(cuts[1:] != cuts[:-1], True)
    if_answered, if_not = (np.array([(score.exact, score.f1) for score in scores]) for scores in (spans, nulls))
    gains = np.cumsum((if_answered - if_not)[order], axis=0)
    # (N + 1, 2), exact and F1: in row k the k questions with the highest margins are answered, the others are not.
    means = (if_not.sum(axis=0) + np.vstack([np.zeros(2), gains])) / len(spans)
    # Rounded, so that equally good thresholds compare as equal and the first of them wins.
    best = int(np.where(last_of_equals, np.round(means[:, 1], 12), -inf).argmax())
    return Threshold(float(cuts[best]), float(means[best, 0]), float(means[best, 1]))


def _without_punctuation(answer: str) -> str:
    return answer.lower().strip().translate(_NO_CHINESE_PUNCTUATION)


def _longest_common_run(one: list[str], other: list[str]) -> int:
    longest = 0
    ending_here = [0] * (len(other) + 1)  # [j]: length of the common run that ends at this unit and at other[j - 1]
    for unit in one:
        ending_here = [0] + [
            before + 1 if unit == there else 0 for before, there in zip(ending_here[:-1], other, strict=True)
        ]
        longest = max(longest, *ending_here)
    return longest


def _f1(common: int, gold: int, guessed: int) -> float:
    """From the number of common words and of the words of each answer. If one is empty: 1 if both are, else 0."""
    return 2 * common / (gold + guessed) if gold and guessed else float(gold == guessed)
