"""Which tokens an answer rests on: integrated gradients, and occlusion.

In: a model, a text or a pair, which answer (`targets.py`). Out: `Attribution`: a score for each token and word.
Positive: the token speaks for the answer; negative: against it.

integrated-gradients  (x - b) x the mean gradient of the score along the line from b to x, summed over the embedding's
                      columns, where x are the token embeddings and b is a baseline (Sundararajan et al. 2017). The
                      scores of all tokens sum to score(x) - score(b): completeness
occlusion             the score of the text, minus that of the text in which the word's tokens are [MASK]

Notable choices
- Only token embeddings move; positions, segments and special tokens stay. So does a [MASK] that is asked about: it is
  the question.
- The baseline is [PAD] at every token (`pad`), or `mask`, or the zero vector (`zero`). [PAD] is what a model knows as
  "no word"; the zero vector is far from all embeddings, and without position embeddings a layer norm makes the score
  jump there.
- The integral is computed with Gauss-Legendre nodes, twice as many until completeness holds within GAP (or rounding),
  at most MOST_STEPS: transformers are smooth, so this takes fewer steps than equal ones. `completeness_gap` tells what
  is left, as a share of score(x) - score(b).
- A word's score is the sum of its tokens' gradients; under occlusion all its tokens are hidden at once, which is not
  the sum.

Shapes: R rows, n tokens, E width of an embedding.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keel.errors import UserError
from keel.explain.reading import ExplainedModel, Reading
from keel.explain.targets import Choice, Done, Report, Target, find_target
from keel.learner.windows import BATCH_TOKENS
from keel.values import Inspection

GRADIENTS, OCCLUSION = "integrated-gradients", "occlusion"
BASELINES = ("pad", "mask", "zero")
FIRST_STEPS, MOST_STEPS = 16, 512
GAP = 0.01
ROUNDING = 1e-6  # of the scores in float32: where they hardly differ, no number of steps makes the sum exact
GRADIENT_TOKENS = 1024  # computed together: their activations are stored for the gradient


@dataclass(frozen=True)
class Attribution:
    reading: Reading
    by: str
    answer: dict[str, Any]
    value: float  # the score that is explained
    scores: np.ndarray  # (n,) float32
    word_scores: np.ndarray  # (words,) float32
    baseline: str  # what stands in place of the tokens
    baseline_value: float | None = None  # the score of the baseline
    steps: int | None = None
    completeness_gap: float | None = None

    def as_json(self) -> dict[str, Any]:
        words = zip(self.reading.words, self.word_scores.tolist(), strict=True)
        found = self.reading.as_json("attribution") | {"by": self.by, "answer": self.answer, "value": self.value}
        return found | {
            "sign": "positive speaks for the answer",
            "scores": self.scores.tolist(),
            "words": [asdict(word) | {"score": score} for word, score in words],
            "baseline": self.baseline,
            "baseline_value": self.baseline_value,
            "steps": self.steps,
            "completeness_gap": self.completeness_gap,
        }


def attribution(
    model: ExplainedModel,
    text: str,
    pair: Any = None,
    *,
    by: str = GRADIENTS,
    label: str | None = None,
    token: str | None = None,
    word: str | None = None,
    scale: str | None = None,
    baseline: str | None = None,
    steps: int | None = None,
    report: Report | None = None,
) -> Attribution:
    """`steps` None: as many as completeness takes. `report`: told how many steps, or words, are done."""
    if by not in (GRADIENTS, OCCLUSION):
        raise UserError(f"there is no attribution by '{by}'; choose {GRADIENTS} or {OCCLUSION}")
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise UserError(f"{steps} steps: give 1 to {MOST_STEPS}")
    if by == OCCLUSION and (baseline, steps) != (None, None):
        raise UserError(f"baseline and steps are settings of {GRADIENTS}; occlusion hides words")
    with torch.inference_mode(False):
        target = find_target(model, text, pair, Choice(label, token, word, scale), ("logit", "log-probability"))
        return _occlude(target, report) if by == OCCLUSION else _integrate(target, baseline, steps, report)


def _moving(target: Target) -> np.ndarray:
    """(n,) bool: the tokens of the text."""
    moving = ~target.reading.window.special
    moving[list(target.keep)] = False
    return moving


@torch.no_grad()
def _occlude(target: Target, report: Report | None) -> Attribution:
    tokenizer, ids = target.model.tokenizer, target.reading.ids
    hidden = next((id for id in (tokenizer.mask, tokenizer.unk, tokenizer.pad) if id >= 0), None)
    if hidden is None:
        raise UserError(f"{target.model.path}: its tokenizer has no [MASK], [UNK] or [PAD] to put in place of a word")
    moving, words = _moving(target), target.reading.words
    groups = [word.tokens for word in words if moving[list(word.tokens)].all()]
    groups += [(n,) for group in groups if len(group) > 1 for n in group]
    rows = np.repeat(target.ids, len(groups) + 1, 0)
    for row, group in zip(rows[1:], groups, strict=True):
        row[list(group)] = hidden
    together = max(1, BATCH_TOKENS // len(ids))
    parts = []
    for first in range(0, len(rows), together):
        if report:
            report(Done(first, len(rows)))
        parts.append(target.scores(rows[first : first + together]))
    scores = torch.cat(parts).cpu().double().numpy()
    drops = dict(zip(groups, scores[0] - scores[1:], strict=True))
    return Attribution(
        target.reading,
        OCCLUSION,
        target.answer,
        float(scores[0]),
        np.array([drops.get((n,), 0.0) for n in range(len(ids))], np.float32),
        np.array([drops.get(word.tokens, 0.0) for word in words], np.float32),
        tokenizer.token(hidden),
    )


def _integrate(target: Target, baseline: str | None, steps: int | None, report: Report | None) -> Attribution:
    model = target.model
    if model.learner.backbone.config.characters_read:
        raise UserError(
            f"{model.path}: this model reads words letter by letter, so there are no token embeddings for {GRADIENTS}; "
            f"choose {OCCLUSION}"
        )
    table = model.learner.backbone.token_embeddings().detach()
    own = table[torch.from_numpy(target.reading.ids).to(table.device)]
    name, vector = _baseline(target, table, baseline)
    moving = torch.from_numpy(_moving(target)).to(table.device)
    start = torch.where(moving[:, None], vector, own)
    with torch.no_grad():
        ends = torch.stack([start, own]).flatten(0, 1)
        first, last = target.scores(np.repeat(target.ids, 2, 0), Inspection(embedded=ends)).double().tolist()
    change, count = last - first, steps or FIRST_STEPS
    rounding = ROUNDING * max(abs(first), abs(last))
    while True:
        scores = _gradients(target, start, own, count, report)
        missing = abs(float(scores.sum()) - change)
        gap = missing / max(abs(change), 1e-12)
        if steps or missing <= max(GAP * abs(change), rounding) or count >= MOST_STEPS:
            break
        count *= 2
    words = [scores[list(word.tokens)].sum() for word in target.reading.words]
    whole = (np.asarray(scores, np.float32), np.asarray(words, np.float32))
    return Attribution(target.reading, GRADIENTS, target.answer, last, *whole, name, first, count, gap)


def _baseline(target: Target, table: Tensor, baseline: str | None) -> tuple[str, Tensor]:
    """What stands in place of every token, and its embedding (E,)."""
    tokenizer = target.model.tokenizer
    if baseline not in (None, *BASELINES):
        raise UserError(f"unknown baseline '{baseline}'; choose {', '.join(BASELINES)}")
    if baseline == "zero" or (baseline is None and tokenizer.pad < 0):
        return "zero", torch.zeros_like(table[0])
    id = tokenizer.mask if baseline == "mask" else tokenizer.pad
    if not 0 <= id < len(table):
        raise UserError(f"this model has no {baseline} token for a baseline; choose zero")
    return tokenizer.token(id), table[id]


def _gradients(target: Target, start: Tensor, end: Tensor, steps: int, report: Report | None) -> np.ndarray:
    """(n,) float64: integrated gradients."""
    nodes, shares = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(end, dtype=torch.float64, device="cpu")
    together = max(1, GRADIENT_TOKENS // len(end))
    for first in range(0, steps, together):
        if report:
            report(Done(first, steps))
        part = slice(first, first + together)
        places = torch.from_numpy((nodes[part] + 1) / 2).to(end)
        points = (start + places[:, None, None] * (end - start)).requires_grad_()
        with torch.enable_grad():
            ids = np.repeat(target.ids, len(places), 0)
            score = target.scores(ids, Inspection(embedded=points.flatten(0, 1))).sum()
            (slopes,) = torch.autograd.grad(score, points, allow_unused=True)
        if slopes is None:
            raise UserError(
                f"{target.model.path}: its token embeddings cannot be replaced (`embed_tokens`), so there are no "
                f"{GRADIENTS}; choose {OCCLUSION}"
            )
        weights = torch.from_numpy(shares[part] / 2)[:, None, None]
        total += (slopes.cpu().double() * weights).sum(0)
    moved: np.ndarray = (total * (end - start).cpu().double()).sum(1).numpy()
    return moved
