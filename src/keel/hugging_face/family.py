"""A backbone's mapping to Hugging Face folders: `config.json` in both directions, tensor names, old names, classes.

In: a backbone's class. Out: its `Family`. Backbones that `transformers` supports have a table in `families/`; all
others, plug-ins included, are written with their own config keys and tensor names (`own_family`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from keel.hugging_face.names import Name
from keel.interfaces import Backbone
from keel.learner.no_weights import no_weights

OWN_PREFIX = "keel-"  # of the model_type of a family that transformers does not support


def nothing_differs(config: Any) -> bool:
    return True


def all_used(config: Any) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Family:
    """`classes`: the classes of `transformers` for pretrained models, and their parts besides the encoder: the
    objectives' heads, and perhaps the `pooler`. A model is saved as the first class whose parts it has; the last class
    has none.
    `heads`: for each kind of task, the class of `transformers` with such a head, and the name of its last layer.
    `own_keys`: config keys that `config.json` has no equivalent for.
    `computes_same`: whether `transformers` computes the same as Keel for a config.
    `unused`: beginnings of tensor names in published folders that neither Keel nor `transformers` reads.
    """

    model_type: str
    config_to: Callable[[Any, int], dict[str, Any]]
    config_from: Callable[[dict[str, Any], set[str]], Any]
    names: Callable[[Any, str | None], list[Name]]  # from a config and the kind of task, if any
    tidy: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    classes: list[tuple[str, set[str]]]
    heads: dict[str, tuple[str, str]]
    own_keys: tuple[str, ...] = ()
    has_segments: bool = False
    names_special_tokens: bool = False  # config.json holds the ids of [CLS] and [SEP], also as bos and eos
    computes_same: Callable[[Any], bool] = nothing_differs
    unused: Callable[[Any], tuple[str, ...]] = all_used

    def best_class(self, parts: set[str]) -> tuple[str, set[str]]:
        return next((name, has) for name, has in self.classes if has <= parts)


def own_family(kind: type[Backbone]) -> Family:
    """The family of a backbone that `transformers` does not support, with Keel's own config keys and tensor names."""
    name = str(kind.Config.model_fields["kind"].default)

    def config_to(config: Any, pad: int) -> dict[str, Any]:
        shape = config.model_dump(mode="json", exclude={"kind", "vocabulary"})
        model_type = f"{OWN_PREFIX}{name}"
        return {"model_type": model_type, "vocab_size": config.vocabulary, "pad_token_id": pad, **shape}

    def config_from(published: dict[str, Any], tensor_names: set[str]) -> Any:
        known = set(kind.Config.model_fields) - {"kind", "vocabulary"}
        shape = {key: published[key] for key in known if key in published}
        return kind.Config(vocabulary=published["vocab_size"], **shape)

    def names(config: Any, task: str | None) -> list[Name]:
        with no_weights():
            return [Name(f"backbone.{name}", name) for name in kind(config).state_dict()]

    classes = [(kind.__name__, {"pooler"}), (kind.__name__, set[str]())]
    return Family(name, config_to, config_from, names, dict, classes, {})


def renamed(published: dict[str, Any], keys: dict[str, str]) -> dict[str, Any]:
    """The published values under our names; missing keys are left out."""
    given = {name: published[theirs] for name, theirs in keys.items() if theirs in published}
    if given.get("activation") == "gelu_pytorch_tanh":  # an alias in transformers
        given["activation"] = "gelu_new"
    return given


def drop_tied(tensors: dict[str, Tensor], table: str, outputs: list[tuple[str, str | None]]) -> dict[str, Tensor]:
    """Drops output layers that repeat the embedding matrix.

    `outputs`: layers tied to the embedding matrix `table`, each with the name of the bias it is tied to, if any."""
    kept = dict(tensors)
    for layer, bias in outputs:
        for alias, original in ((f"{layer}.weight", table), (f"{layer}.bias", bias or "")):
            both = alias != original and alias in kept and original in kept
            if both and kept[alias].dtype == kept[original].dtype and torch.equal(kept[alias], kept[original]):
                del kept[alias]
    return kept
