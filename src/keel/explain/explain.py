"""`keel explain`: one entry for all methods.

In: a loaded model, a text or a pair, a method. Out: the value of that method, with `as_json()`.

attention    how much each token attends to each other one, in every layer and head  (`attention.py`)
heads        how the answer changes when one head is switched off                    (`heads.py`)
layers       what each layer would already answer                                    (`layers.py`)
attribution  which tokens the answer rests on                                        (`attribution.py`)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from keel.errors import UserError, suggest
from keel.explain.attention import attention
from keel.explain.attribution import attribution
from keel.explain.heads import heads
from keel.explain.layers import layers
from keel.explain.reading import ExplainedModel


class Explanation(Protocol):
    """What every method returns."""

    def as_json(self) -> dict[str, Any]: ...


METHODS: dict[str, Callable[..., Explanation]] = {
    "attention": attention,
    "heads": heads,
    "layers": layers,
    "attribution": attribution,
}


def explain(model: ExplainedModel, text: str, pair: Any = None, method: str = "attention", **options: Any) -> Any:
    """The explanation of a text; the options are those of the method's function."""
    if method not in METHODS:
        raise UserError(f"there is no method '{method}' to explain with.{suggest(method, METHODS)}")
    known = list(inspect.signature(METHODS[method]).parameters)[3:]
    for name in options:
        if name not in known:
            raise UserError(f"the method {method} has no option '{name}'.{suggest(name, known)}")
    return METHODS[method](model, text, pair, **options)
