"""Windows of two long texts: every token of both is in a row, and no row is longer than allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.tasks._text_rows import TextExample, text_windows
from keel.testing.small import TOKENIZER
from keel.text.labelled import LabelledData
from keel.text.long_text import LongText

FIRST, SECOND = 100, 10_000  # where the ids of each text begin


class Numbered:
    """A tokenizer whose text "3" is three tokens with ids of their own."""

    cls, sep, pad, between = TOKENIZER.cls, TOKENIZER.sep, TOKENIZER.pad, TOKENIZER.between

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        starts = (FIRST, SECOND)
        return [starts[n % 2] + np.arange(int(text)) for n, text in enumerate(texts)]


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(8, 64), st.floats(0, 0.9))
def test_windows_cover_both_texts(first: int, second: int, length: int, overlap: float) -> None:
    data = LabelledData(length=length, long=LongText(strategy="windows", overlap=overlap))
    tokenizer: Any = Numbered()
    windows, truncation = text_windows([TextExample((str(first), str(second)))], tokenizer, data)
    assert all(len(window.ids) <= length for window in windows)
    seen = np.concatenate([window.ids[~window.special] for window in windows])
    assert set(seen) == {*range(FIRST, FIRST + first), *range(SECOND, SECOND + second)}
    assert (truncation.truncated_texts, truncation.truncated_tokens) == (0, 0)
