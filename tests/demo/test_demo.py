"""The demo's parts on a tiny text: markup becomes plain text with code spans, and train and dev share no document."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from keel.demo import demo
from keel.demo.tasks import make_tasks
from keel.demo.text import prose


@given(st.sampled_from(["the_list", "os.path", "x"]), st.sampled_from(["reads", "returns", "ignores"]))
def test_code_spans_are_the_words_that_were_marked(name: str, verb: str) -> None:
    (paragraph,) = prose(f"This function {verb} the value of ``{name}`` before anything else is done.\n\n>>> f(1)\n2")
    assert "`" not in paragraph.text and f" {name} " in paragraph.text
    assert [paragraph.text[start:stop] for start, stop in paragraph.code] == [name]


def test_no_document_is_in_train_and_dev(tmp_path: Path) -> None:
    text = tmp_path / "text.jsonl"
    lines = []
    for number in range(100):
        one = f"Number {number} says that the default is {number} in all of its many versions."
        two = f"It raises a ValueError if the value of {number} is too large for the array."
        code = [[[0, 6]], []]
        record = {"text": f"{one}\n{two}", "source": f"p{number % 3}/m.py", "code": code}
        lines.append(json.dumps(record))
    text.write_text("\n".join(lines) + "\n")
    kinds = make_tasks(text, tmp_path / "tasks")
    assert set(kinds.values()) == {"classify", "tag", "answer"}
    for task in kinds:
        train, dev = (next((tmp_path / "tasks" / task).glob(f"{part}.*")).read_text() for part in ("train", "dev"))
        for number in range(100):
            said = (f"Number {number} says", f"value of {number} is")
            assert not (any(s in train for s in said) and any(s in dev for s in said)), (task, number)
        assert train and dev


def test_the_blanks_have_one_mask_each() -> None:
    assert all(text.count("[MASK]") == 1 for text in demo.BLANKS)


def test_a_slow_machine_is_told_how_many_minutes_it_needs() -> None:
    assert demo.more_time(250, 4.0).endswith("keel demo --minutes 16")
    assert demo.more_time(900, 4.0).endswith("keel demo --minutes 8"), "at least twice as long"
    assert demo.more_time(0, 0.1).endswith("keel demo --minutes 100")
