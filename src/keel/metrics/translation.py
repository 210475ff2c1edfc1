"""Machine translation: BLEU (Papineni et al. 2002) and chrF (Popovic 2015), computed by sacrebleu.

In: translations and one reference for each, as plain (detokenized) text. Out: scores from 0 to 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keel.errors import UserError


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU with sacrebleu's defaults: cased, 13a tokenization, exponential smoothing."""
    return float(need_sacrebleu().corpus_bleu(list(translations), [list(references)]).score)


def chrf(translations: Sequence[str], references: Sequence[str]) -> float:
    """Corpus chrF2: character n-grams up to 6, no words."""
    return float(need_sacrebleu().corpus_chrf(list(translations), [list(references)]).score)


def sentence_chrf(translation: str, reference: str) -> float:
    return float(need_sacrebleu().sentence_chrf(translation, [reference]).score)


def need_sacrebleu() -> Any:
    """The library; an error explains how to install it."""
    try:
        import sacrebleu
    except ImportError:
        raise UserError("translations are scored with sacrebleu: pip install 'keel-nlp[translate]'") from None
    return sacrebleu
