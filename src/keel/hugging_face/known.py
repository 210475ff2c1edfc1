"""Registry of families. In: a backbone's class, or a folder's `model_type`. Out: its family, or the backbone class."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from keel import catalog
from keel.configs import brief
from keel.errors import UserError, near
from keel.hugging_face.families import (
    albert,
    bert,
    deberta,
    distilbert,
    electra,
    gpt,
    modern,
    mpnet,
    roberta,
    word2vec,
    xlm_roberta,
)
from keel.hugging_face.family import OWN_PREFIX, Family, own_family
from keel.interfaces import Backbone

PUBLISHED = {
    "albert": albert.FAMILY,
    "bert": bert.FAMILY,
    "deberta": deberta.FAMILY,
    "distilbert": distilbert.FAMILY,
    "electra": electra.FAMILY,
    "gpt": gpt.FAMILY,
    "modern": modern.FAMILY,
    "mpnet": mpnet.FAMILY,
    "roberta": roberta.FAMILY,
    "word2vec": word2vec.FAMILY,
    "xlm_roberta": xlm_roberta.FAMILY,
}


DECODER = "a decoder that continues texts, not an encoder; there is no conversion"
SEQ2SEQ = "an encoder with a decoder for texts; there is no conversion"
RELATIVE = "an encoder whose attention or positions are computed in a way that Keel does not have"
OTHER_KINDS = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom"), DECODER),
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "phi", "phi3", "falcon"), DECODER),
    **dict.fromkeys(("bart", "mbart", "t5", "mt5", "pegasus", "marian", "m2m_100", "blenderbot", "led"), SEQ2SEQ),
    **dict.fromkeys(("deberta", "xlnet", "longformer", "big_bird", "funnel"), RELATIVE),
    **dict.fromkeys(("vit", "clip", "wav2vec2", "whisper"), "a model of images or sound"),
}


@cache
def family_of(backbone: type[Backbone]) -> Family:
    kind = str(backbone.Config.model_fields["kind"].default)
    return PUBLISHED.get(kind) or own_family(backbone)


def backbone_for(model_type: Any, folder: Path) -> type[Backbone]:
    """The backbone class for a folder's `model_type`, with or without the prefix of models not in `transformers`."""
    backbones: list[type[Backbone]] = [catalog.find("backbones", name) for name in catalog.names("backbones")]
    known = {family_of(backbone).model_type: backbone for backbone in backbones}
    model_type = (model_type if isinstance(model_type, str) else brief(model_type)).removeprefix(OWN_PREFIX)
    if model_type not in known:
        what = f" It is {OTHER_KINDS[model_type]}." if model_type in OTHER_KINDS else near(model_type[:80], known, 0.8)
        raise UserError(
            f"{folder / 'config.json'}: model_type {brief(model_type)} is not supported.{what} "
            f"Supported: {', '.join(sorted(known))}. If it is defined by a plug-in, add --plugin FILE"
        )
    return known[model_type]
