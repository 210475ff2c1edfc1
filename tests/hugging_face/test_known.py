"""The page that lists the kinds of folders that open lists exactly these, with their heads."""

from __future__ import annotations

import re
from pathlib import Path

from keel.hugging_face.family import OWN_PREFIX
from keel.hugging_face.known import PUBLISHED, family_of, kinds_that_open

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "files-and-folders.md"


def test_the_page_lists_the_kinds_that_open() -> None:
    section = PAGE.read_text(encoding="utf-8").split("### Kinds that open")[1]
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| ([^|]+) \| ([^|]*)\|$", section, re.MULTILINE)
    told = {model_type: (kind, set(heads.strip().split(", ")) - {""}) for model_type, kind, _, heads in rows}
    known = {}
    for model_type, backbone in kinds_that_open().items():
        if not backbone.__module__.startswith("keel."):  # a plug-in of another test
            continue
        kind = str(backbone.Config.model_fields["kind"].default)
        there = kind in PUBLISHED and kind != "word2vec"
        known[model_type if there else OWN_PREFIX + model_type] = kind, set(family_of(backbone).heads)
    assert told == known and len(rows) == len(known)
