"""Registry of families. In: a backbone's class, or a folder's `model_type`. Out: its family, or the backbone class."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from keel import catalog
from keel.configs import brief
from keel.errors import UserError
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
from keel.hugging_face.other_kinds import described
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


@cache
def family_of(backbone: type[Backbone]) -> Family:
    kind = str(backbone.Config.model_fields["kind"].default)
    return PUBLISHED.get(kind) or own_family(backbone)


def backbone_for(published: dict[str, Any], folder: Path) -> type[Backbone]:
    """The backbone class for a folder's `model_type`, with or without the prefix of models not in `transformers`."""
    known = kinds_that_open()
    given = published.get("model_type")
    model_type = (given if isinstance(given, str) else brief(given)).removeprefix(OWN_PREFIX)
    if model_type not in known:
        what = described(given, published) or "If it is defined by a plug-in, add --plugin FILE."
        raise UserError(
            f"{folder / 'config.json'}: model_type {brief(given)} is not supported. {what} Kinds that open: "
            f"{', '.join(sorted(known))}"
        )
    return known[model_type]


def kinds_that_open() -> dict[str, type[Backbone]]:
    """The backbones by their `model_type`, without the prefix of models not in `transformers`."""
    backbones: list[type[Backbone]] = [catalog.find("backbones", name) for name in catalog.names("backbones")]
    return {family_of(backbone).model_type: backbone for backbone in backbones}
