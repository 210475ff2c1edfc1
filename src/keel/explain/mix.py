"""How much a frozen encoder's layers count for its task: the learned mix of ELMo (Peters et al. 2018).

In: a model without attention. Out: `LayerShares`: the share of each layer, lowest first, and the factor gamma, for each
place where a mix is read; or an error that says what the model has instead of attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keel.errors import UserError
from keel.explain.reading import ExplainedModel, Reading


@dataclass(frozen=True)
class LayerShares:
    reading: Reading
    shares: dict[str, list[float]]  # by place: `read` by the head or a BiLSTM, `beside` it
    gamma: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return self.reading.as_json("attention") | {"attention": None, "mix": self.shares, "gamma": self.gamma}


def layer_shares(model: ExplainedModel, reading: Reading) -> LayerShares:
    """Of a model that has no attention."""
    mixes = model.learner.frozen.mixes() if model.learner.frozen is not None else {}
    if not mixes:
        config = model.learner.backbone.config
        has = f"{config.layers} recurrent layers" if config.kind in ("elmo", "rnn") else f"{config.layers} layers"
        raise UserError(
            f"{model.path}: a model of kind {config.kind} has no attention to show, it has {has}; "
            "the method attribution shows what its answers rest on"
        )
    return LayerShares(
        reading, {name: mix[:-1] for name, mix in mixes.items()}, {name: mix[-1] for name, mix in mixes.items()}
    )
