"""The first plateau of masked language modelling: nothing has been learned from context yet.

In: masked batches, and how often each token occurs in the corpus. Out: the loss of the best prediction without context
on these batches, whether a run is still on the plateau, and what to tell its user.

A BERT first learns how frequent the tokens are, then for hundreds of steps hardly anything; its loss falls again when
attention has found the neighbours of a token (docs/decisions/0011). Without context, the best prediction is

    [MASK] is shown       p(a), the frequency of the answer a
    a token s is shown    (k p(s) [a = s] + r/n p(a)) / (k p(s) + r/n)

because s was kept (a fraction k of the selected tokens) or is one of n ordinary tokens, put there at random (r).

Notable choices
- Not the entropy of the frequencies alone: that kept tokens can be copied is learned on the plateau too, and is worth
  half a nat. A bert-tiny whose attention starts as noise stood at 5.95 after 1,000 steps; this formula gives 5.87, the
  frequencies 6.48 (docs/notebook.md).
- With similar tokens in place of [MASK], or with another mixture in the evaluation recipe, the formula does not hold,
  and nothing is said.
- Without held-out documents, the last training loss is compared with the formula on the first training rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keel.configs import ObjectiveConfig
from keel.corpus.stream import Cursor
from keel.interfaces import Tokenizer
from keel.learner.learner import Learner
from keel.objectives._masking import special_ids
from keel.pretraining.data import Data
from keel.values import Batch

OBJECTIVE = "masked_lm"
LEVEL = f"{OBJECTIVE}_without_context"  # in metrics.jsonl and in results
MARGIN = 0.3  # nats below the level that show that context is used
# Measured with the small recipes, steps of 1,024 to 2,048 tokens and heads that start at their neighbours: 400 to 800.
USUAL_STEPS = (300, 1000)
WHAT = "plateau: it predicts from word frequencies, not yet from context"
ADVICE = (
    "the model predicts from word frequencies, not from context: give it a longer --budget or more --steps, of fewer"
)
ADVICE += " tokens (training.batch_tokens)"
FASTER = "modern"  # the kind of backbone that leaves the plateau soonest


@dataclass(frozen=True)
class Plateau:
    """`parts`: the loss without context and the number of predictions of each batch; none: nothing can be said."""

    parts: Sequence[tuple[float, int]] = ()

    @staticmethod
    def of(learner: Learner, data: Data, held_out: Sequence[Batch]) -> Plateau:
        config, own = data.evaluated.get(OBJECTIVE), data.recipe.model.objectives.get(OBJECTIVE)
        if config is None or own is None or _mixture(config) != _mixture(own) or _mixture(own)["similar"]:
            return Plateau()
        if not held_out:
            rows, _ = data.streams["main"].take(Cursor(), data.recipe.training.evaluation_tokens)
            held_out = [learner.prepare(rows, data.tokenizer)]
        counts = data.corpus.count_tokens(data.tokenizer.size)
        losses = [losses_without_context(batch, _mixture(own), counts, data.tokenizer) for batch in held_out]
        return Plateau([(float(loss.sum()), len(loss)) for loss in losses])

    def figures(self, measured: Mapping[str, float], parts: int | None = None) -> dict[str, float]:
        """What an evaluation on the first parts says about it."""
        loss, of_parts = measured.get(f"{OBJECTIVE}.loss"), self.parts[:parts]
        count = sum(number for _, number in of_parts)
        if loss is None or not count:
            return {}
        level = sum(total for total, _ in of_parts) / count
        return {LEVEL: level, "plateau": bool(loss > level - MARGIN)}


def losses_without_context(
    batch: Batch, mixture: Mapping[str, float], counts: np.ndarray, tokenizer: Tokenizer
) -> np.ndarray:
    """(P,): of the best prediction of each selected token."""
    ordinary = np.ones(tokenizer.size, bool)
    ordinary[special_ids(tokenizer)] = False
    frequency = np.where(ordinary, counts + 1.0, 0.0)  # of tokens that do not occur, once
    frequency /= frequency.sum()
    answers = batch.targets[f"{OBJECTIVE}.answers"].cpu().numpy()
    shown = batch.ids.cpu().numpy()[batch.targets[f"{OBJECTIVE}.places"].cpu().numpy()]
    kept, random = mixture["kept"] * frequency[shown], mixture["random"] / ordinary.sum()
    known = np.divide(kept, kept + random, out=np.zeros_like(kept), where=kept > 0)  # 0 for [MASK]
    losses: np.ndarray = -np.log(known * (shown == answers) + (1 - known) * frequency[answers])
    return losses


def _mixture(config: ObjectiveConfig) -> dict[str, float]:
    """What is shown instead of the selected tokens: fractions of them."""
    options = config.model_dump()
    random, similar = options["random_replace_prob"], options["similar_replace_prob"]
    kept = max(0.0, 1.0 - options["mask_replace_prob"] - similar - random)
    return {"kept": round(kept, 9), "random": random, "similar": similar}


def advice(kind: str) -> str:
    """To whoever's run with this kind of backbone ended on the plateau."""
    return ADVICE if kind == FASTER else f"{ADVICE}; the recipe modern-mini learns faster than bert-mini"


def remark(entry: Mapping[str, Any]) -> str:
    """A line about an evaluation on the plateau; empty: it is not."""
    if not entry.get("plateau"):
        return ""
    step, (soonest, latest) = entry["step"], USUAL_STEPS
    if step >= latest:
        return f"{WHAT}; small models usually leave it after {soonest} to {latest:,} steps, so this one is late"
    least, most = (max(0, steps - step) * entry["elapsed"] / max(1, step) / 60 for steps in USUAL_STEPS)
    low, high = round(least), max(1, math.ceil(most))
    when = f"in {low:,} to {high:,}" if 0 < low < high else f"within {high:,}"
    return (
        f"{WHAT}; the next drop usually comes after {soonest} to {latest:,} steps, {when} minute{'s' * (high > 1)} at "
        "this speed"
    )
