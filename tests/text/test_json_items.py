"""The items of a list in one JSON object, parsed one by one, are those that json.loads gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import UserError
from keel.text import blocks
from keel.text.json_items import json_items

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    items=st.lists(values, max_size=6),
    before=st.dictionaries(st.text().filter(lambda key: key != "data"), values, max_size=3),
    after=st.dictionaries(st.text().filter(lambda key: key != "data"), values, max_size=3),
    block=st.integers(1, 40),
    ascii=st.booleans(),
    indent=st.none() | st.integers(0, 2),
)
def test_any_object_cut_into_blocks_anywhere(tmp_path_factory, items, before, after, block, ascii, indent) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    whole = json.dumps({**before, "data": items, **after}, ensure_ascii=ascii, indent=indent)
    path.write_bytes(whole.encode("utf-8", "surrogatepass"))
    expected = json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))["data"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        assert list(json_items(path, "data", "SQuAD")) == expected


@given(
    text=st.text(alphabet='{}[]",:data1e-. \n\\u', max_size=40)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
)
def test_what_json_refuses_is_refused_at_the_same_place(tmp_path_factory, text) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    whole = '{"data": [' + text
    path.write_text(whole, encoding="utf-8")
    try:
        expected = json.loads(whole)
    except json.JSONDecodeError as error:
        with pytest.raises(UserError, match=rf"line {error.lineno}, column {error.colno}: not JSON"):
            list(json_items(path, "data", "SQuAD"))
    except RecursionError:
        pass
    else:
        assert list(json_items(path, "data", "SQuAD")) == expected["data"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("[1, 2]", "expected .*, found no object"),
        ('{"version": 1}', r"found an object with the keys \['version'\]"),
        ('{"data": {"a": 1}}', "found an object with the keys"),
        ('{"data": []} {"data": []}', "Extra data.*the suffix is .jsonl"),
    ],
)
def test_an_object_without_the_list_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=message):
        list(json_items(tmp_path / "a.json", "data", "SQuAD"))
