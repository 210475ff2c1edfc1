"""A saved folder opens in transformers, if that knows the family: no key missing or unexpected, the same vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from keel import catalog
from keel.hugging_face.folder import load_model, save_model
from keel.hugging_face.known import PUBLISHED
from keel.testing.small import batch_of, fitting, rows_for, small_learner, tokenizer_and_folder

KNOWN_THERE = set(PUBLISHED) - {"word2vec"}  # which is published, but in a format of its own
PAIRS = [(b, [o]) for b in sorted(KNOWN_THERE) for o in fitting(b)] + [
    (b, fitting(b)) for b in catalog.names("backbones")
]


@pytest.mark.parametrize(
    ("backbone", "objectives"), PAIRS, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_a_saved_folder_opens_in_transformers(backbone: str, objectives: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    learner = small_learner(backbone, {name: {} for name in objectives}).eval()
    with tokenizer_and_folder() as (tokenizer, folder):
        save_model(folder, learner, tokenizer, "")
        published = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        there = published["model_type"] in transformers.CONFIG_MAPPING
        assert there == (backbone in KNOWN_THERE), "a family that is known there opens there, and no other"
        if there:
            _compare(transformers, folder, backbone, published["architectures"][0])


def _compare(transformers: Any, folder: Path, backbone: str, architecture: str) -> None:
    theirs, account = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    assert not {key: found for key, found in account.items() if found}
    base, ours = theirs.base_model.eval(), load_model(folder).learner.backbone
    rows = rows_for(ours)
    with torch.no_grad():
        vectors = ours(batch_of(ours, rows)).vectors
        for start, length in zip(rows.starts, rows.lengths, strict=True):
            part = slice(start, start + length)
            given = {"input_ids": torch.tensor(rows.ids[part])[None]}
            if PUBLISHED[backbone].has_segments:
                given["token_type_ids"] = torch.tensor(rows.segments[part])[None]
            assert float((base(**given).last_hidden_state[0] - vectors[part]).abs().max()) <= 1e-5
