"""A table without a header is recognised, and the message says how to name its columns by number."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.errors import UserError, separate
from keel.text.labelled import LabelledData, read_examples

NEWS = "Wall St. bears claw back into the black as short sellers see green again"
ROLES = ("text", "pair", "label")


@pytest.mark.parametrize(
    "first", [f"3\t{NEWS}", f"{NEWS}\tbusiness", "4.5\ta\tb", "a man\ta man\tx", "-1\tcalm sea"], ids=str
)
def test_data_in_the_first_line(tmp_path: Path, first: str) -> None:
    path = tmp_path / "news.tsv"
    path.write_text(f"{first}\nx\ty\n")
    with pytest.raises(UserError) as caught:
        separate(read_examples(str(path), LabelledData(), ROLES))
    message = str(caught.value)
    assert "its first line looks like data, not like a header" in message and "--text 1 --label 2" in message
    assert NEWS not in message and "\n" not in message


def test_a_header_with_other_names_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "news.tsv"
    path.write_text("headline\ttopic\nx\ty\n")
    with pytest.raises(UserError, match=r"holds the text\? It has 'headline', 'topic'; choose with --text"):
        separate(read_examples(str(path), LabelledData(), ROLES))


def test_a_wrong_name_for_a_column_of_a_file_without_header(tmp_path: Path) -> None:
    path = tmp_path / "news.tsv"
    path.write_text(f"3\t{NEWS}\n4\tcalm sea\n")
    with pytest.raises(UserError, match=r"Its first line looks like data\.$"):
        separate(read_examples(str(path), LabelledData(text="text", label="label"), ROLES))
