"""Tagging from CoNLL-U: --text and --label are names of its columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.errors import UserError
from keel.tasks.tag import Tag, TagConfig
from keel.text.labelled import LabelledData
from keel.values import Examples

DATA = (
    "# text = Don't go\n1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tDo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_\n"
    "2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
)


def test_columns_of_universal_dependencies(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(DATA, encoding="utf-8")
    for label, tags in (
        (None, ["AUX", "PART", "VERB"]),
        ("xpos", ["VBP", "RB", "VB"]),
        ("8", ["aux", "advmod", "root"]),
    ):
        read = Examples.of(Tag(TagConfig(), LabelledData(label=label)).open(str(path)))
        (example,) = read.examples
        assert example.text == "Do n't go" and example.tags == tags and not read.rejected
    (example,) = Examples.of(Tag(TagConfig(), LabelledData(text="lemma")).open(str(path), labelled=False)).examples
    assert example.text == "do not go" and example.tags is None
    with pytest.raises(UserError, match="Did you mean 'DEPREL'"):
        Examples.of(Tag(TagConfig(), LabelledData(label="deprell")).open(str(path)))
