"""Upgrades folders written by Keel 0.1 to the current config keys and tensor names.

In: config.json, and tensors under the names they were stored with. Out: the same under the current names. Published
names (those of `transformers`) have not changed; only our own have: the `keel` entry, families that `transformers` does
not support, and heads in `keel.safetensors`.

Notable choice: current folders are marked (`format`) and left unchanged: a plug-in may use a name that 0.1 used.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch import Tensor

from keel.errors import UserError
from keel.renamed_keys import BACKBONE, ENCODER, MEMBERS, OBJECTIVES, TASK

FORMAT = 2  # of the `keel` entry; absent in folders of 0.1
OWN_KINDS = ("keel-transformer", "keel-rnn", "keel-elmo", "keel-fasttext")

# Applied in this order, to our own names only.
TENSORS = (
    (r"\battending\.attention\b", "attention"),
    (r"\battending\.norm\b", "attention_norm"),
    (r"\bfeed\.grow\b", "feed_forward.up"),
    (r"\bfeed\.shrink\b", "feed_forward.down"),
    (r"\bfeed\.norm\b", "feed_forward_norm"),
    (r"(\bdecoder\.blocks\.\d+)\.norm\b", r"\1.attention_norm"),
    (r"\bacross_norm\b", "cross_attention_norm"),
    (r"\bacross\b", "cross_attention"),
    (r"\bgenerator\.widen\b", "generator.embedding_projection"),
    (r"\bboth_ways\.widen\b", "both_ways.projection"),
    (r"\bboth_ways\b", "bidirectional_lm"),
    (r"\bleft_to_right\b", "causal_lm"),
    (r"\bhighways\b", "highway_layers"),
    (r"^keel\.view\.", "keel.frozen."),
    (r"^keel\.backbone\.pooler\.(weight|bias)$", r"keel.backbone.pooler.dense.\1"),
)
OWN_POOLER = (r"^pooler\.(weight|bias)$", r"pooler.dense.\1")  # only for families with our own names


def is_old(published: dict[str, Any]) -> bool:
    own = published.get("keel")
    return isinstance(own, dict) and own.get("format") != FORMAT


def upgrade_tensors(tensors: dict[str, Tensor], published: dict[str, Any]) -> dict[str, Tensor]:
    if not is_old(published):
        return tensors
    changes = (*TENSORS, OWN_POOLER) if published.get("model_type") in OWN_KINDS else TENSORS
    return {_upgraded(name, changes): tensor for name, tensor in tensors.items()}


def _upgraded(name: str, changes: tuple[tuple[str, str], ...]) -> str:
    for old, new in changes:
        name = re.sub(old, new, name)
    return name


def upgrade_config(published: dict[str, Any], folder: Path) -> dict[str, Any]:
    if not is_old(published):
        return published
    own = published["keel"]
    if published.get("model_type") == "keel-rnn":
        _refuse_changed_rnn(published, own, folder)
    if published.get("model_type") in OWN_KINDS:
        published = _renamed(published, BACKBONE)
    if published.get("model_type") == "keel-transformer":  # the first versions had no such key
        published = {"attention_init": "noise"} | published
    sections = dict(own)
    for name, table in (("task", TASK), ("encoder", ENCODER), ("backbone", BACKBONE)):
        if isinstance(sections.get(name), dict):
            sections[name] = _renamed(sections[name], table)
    if isinstance(sections.get("objectives"), dict):
        sections["objectives"] = {
            MEMBERS.get(name, name): _renamed(options, OBJECTIVES) if isinstance(options, dict) else options
            for name, options in sections["objectives"].items()
        }
    return published | {"keel": sections}


def _renamed(section: dict[str, Any], table: dict[str, str]) -> dict[str, Any]:
    renamed = {table.get(key, key): value for key, value in section.items()}
    if "use" in section:
        renamed["frozen"] = section["use"] == "frozen"
    attention = renamed.get("attention")
    if isinstance(attention, dict) and "look" in attention:
        rest = {key: value for key, value in attention.items() if key != "look"}
        renamed["attention"] = rest | {"causal": attention["look"] == "left"}
    return renamed


def _refuse_changed_rnn(published: dict[str, Any], own: dict[str, Any], folder: Path) -> None:
    """In 0.1 a recurrent encoder's config set the activation of its heads and decoders; now heads always use gelu, and
    Transformer decoders relu, as published."""
    task: dict[str, Any] = own["task"] if isinstance(own.get("task"), dict) else {}
    given = published.get("activation", "gelu"), published.get("norm_epsilon", 1e-5)
    has_decoder = task.get("kind") == "translate" and task.get("decoder", "transformer") == "transformer"
    has_head = bool(own.get("objectives"))
    for there, part, now in ((has_decoder, "Transformer decoders", "relu"), (has_head, "token heads", "gelu")):
        if there and given != (now, 1e-5):
            raise UserError(
                f"{folder}: written by Keel 0.1, whose {part} on recurrent encoders used {given[0]} (norm_epsilon "
                f"{given[1]}), but this version uses {now} (1e-05); train it again"
            )
