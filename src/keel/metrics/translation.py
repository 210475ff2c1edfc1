"""How near translations come to the right ones: BLEU (Papineni et al. 2002) and chrF (Popovic 2015), by sacrebleu.

In: texts and one right translation of each, both as people read them. Out: figures from 0 to 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keel.errors import UserError


def bleu(said: Sequence[str], right: Sequence[str]) -> float:
    """Of a whole set. Cased, tokenised by sacrebleu (13a), smoothed as its default is."""
    return float(need_sacrebleu().corpus_bleu(list(said), [list(right)]).score)


def chrf(said: Sequence[str], right: Sequence[str]) -> float:
    """Of a whole set: chrF2, up to six characters, no words."""
    return float(need_sacrebleu().corpus_chrf(list(said), [list(right)]).score)


def sentence_chrf(said: str, right: str) -> float:
    return float(need_sacrebleu().sentence_chrf(said, [right]).score)


def need_sacrebleu() -> Any:
    """The library, or a line about how to get it."""
    try:
        import sacrebleu
    except ImportError:
        raise UserError("translations are judged by sacrebleu: pip install 'keel-nlp[translate]'") from None
    return sacrebleu
