"""What a fine-tuning run has read, shown before anything is trained; and warnings where it looks wrong.

In: the examples, their rows, the task and the tokenizer. Out: lines for the user.

Notable choice: rows are compared as token ids, after tokenization and truncation. What is the same to the model counts
as the same text, whatever the task.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keel.interfaces import Task
from keel.tasks.tag import TaggedText
from keel.text.labelled import LabelledData
from keel.text.word_spans import IDEOGRAPH
from keel.tokenizers.library import LibraryTokenizer
from keel.values import Truncation, Window

SHOWN_LABELS = 12
SHOWN_EXAMPLES = 3
SHOWN_CHARACTERS = 100
MANY_LABELS = 200
MUCH_LOST = 0.1  # of all tokens
LONG_ROW = 512  # tokens
GLUED = re.compile(f"[{IDEOGRAPH}][0-9]")


def describe(
    task: Task, examples: Sequence[Any], windows: Sequence[Window], tokenizer: LibraryTokenizer
) -> Iterator[str]:
    """The labels with their counts, the lengths of rows, and some rows as the model will see them."""
    scorer = task.scorer()
    counts = count_labels(task, [scorer.gold(example) for example in examples])
    if counts:
        total = counts.total()
        shown = [f"{name} {count:,} ({100 * count / total:.1f} %)" for name, count in counts.most_common(SHOWN_LABELS)]
        more = f", and {len(counts) - SHOWN_LABELS:,} more" if len(counts) > SHOWN_LABELS else ""
        yield f"labels: {', '.join(shown)}{more}"
    lengths = np.array([len(window.ids) for window in windows])
    middle, most = np.quantile(lengths, (0.5, 0.95), method="nearest").tolist()
    yield f"rows: {len(windows):,}, median {middle} tokens, 95 % of them at most {most}, the longest {lengths.max()}"
    for window in _first_windows(windows):
        example = examples[window.example]
        text = " ".join(tokenizer.shown(int(id)).strip() for id in window.ids)
        gold = str(scorer.gold(example))
        yield f"row: {_short(text)} -> {_short(gold)}"


def longer_rows(truncation: Truncation, data: LabelledData, task: Task, longest: int) -> str:
    """What to do about much lost text; empty: little is lost, or nothing helps."""
    if truncation.truncated_tokens <= MUCH_LOST * truncation.tokens:
        return ""
    ways = [
        f"rows of {row} tokens (--length {row}) lose less" for row in (min(LONG_ROW, longest),) if row > data.length
    ]
    if "windows" in task.needs.long:
        ways.append("several windows for each text (--long windows) lose nothing")
    return (
        f"{'; '.join(ways)}; both take longer"
        if len(ways) > 1
        else "".join(f"{way}; that takes longer" for way in ways)
    )


def warnings(
    task: Task, examples: Sequence[Any], windows: Sequence[Window], dev: Sequence[Any], dev_windows: Sequence[Window]
) -> Iterator[str]:
    """What looks like a mistake in the data."""
    scorer = task.scorer()
    counts = count_labels(task, [scorer.gold(example) for example in examples])
    if len(counts) > MANY_LABELS:
        yield f"there are {len(counts):,} different labels; is it the right column? Choose with --label"
    once = [name for name, count in counts.items() if count == 1]
    if len(once) > 1 and 10 * len(once) > len(counts):
        yield f"{len(once):,} of {len(counts):,} labels occur only once ({', '.join(map(_short, once[:3]))}, ...)"
    golds = {scorer.gold(example) for example in dev if isinstance(scorer.gold(example), str)}
    if counts and len(dev) > 1 and len(golds) == 1:
        yield "all development examples have the same label, so that a score says nothing"
    if (words := _glued(examples)) is not None:
        yield f"most words end in a digit, as in {words}; remove the digits if they are not part of the text"
    if both := _repeated(windows, dev_windows):
        yield (
            f"{both:,} of {len(dev):,} development examples are also in the training data, so that scores are too good"
        )


def count_labels(task: Task, golds: Sequence[Any]) -> Counter[str]:
    """How often each label occurs, or each type of entity; empty for tasks without labels."""
    if "labels" not in type(task.config).model_fields:
        return Counter()
    counts = Counter[str]()
    for gold in golds:
        for item in [gold] if isinstance(gold, str) else gold or ():
            counts[item if isinstance(item, str) else item[2]] += 1  # an entity is (start, stop, label)
    return counts


def _first_windows(windows: Sequence[Window]) -> list[Window]:
    """The first window of each of the first examples."""
    first: dict[int, Window] = {}
    for window in windows:
        if len(first) == SHOWN_EXAMPLES and window.example not in first:
            break
        first.setdefault(window.example, window)
    return list(first.values())


def _glued(examples: Sequence[Any]) -> str | None:
    """A word like `科0`, if most words of tagged texts are like this."""
    found, words = Counter[str](), 0
    for example in examples[:1000]:
        spans = example.words if isinstance(example, TaggedText) else []
        words += len(spans)
        found.update(word for a, b in spans if GLUED.fullmatch(word := example.text[a:b]))
    return found.most_common(1)[0][0] if words and 2 * found.total() > words else None


def _repeated(windows: Sequence[Window], dev_windows: Sequence[Window]) -> int:
    """The number of development examples of which every row is also a training row."""
    seen = {window.ids.tobytes() for window in windows}
    new = {window.example for window in dev_windows if window.ids.tobytes() not in seen}
    return len({window.example for window in dev_windows} - new)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 4] + " ..."
