"""The metrics of each task, from answers in groups of any size, equal those of the field's libraries on all of them."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn.dummy import DummyClassifier

from keel.interfaces import Task
from keel.tasks._scoring import WORST
from keel.tasks._text_rows import TextExample
from keel.tasks.classify import Classify, ClassifyConfig
from keel.tasks.regress import Regress, RegressConfig
from keel.tasks.tag import Tag, TagConfig, TaggedText
from keel.text.labelled import LabelledData
from keel.values import Evaluation

LABELS = ["a", "b", "c"]
anything = settings(deadline=None, max_examples=100)
sizes = st.integers(1, 7)


def score(task: Task, examples: Sequence[Any], answers: Sequence[dict[str, Any]], size: int) -> Evaluation:
    scorer = task.scorer()
    for place in range(0, len(examples), size):
        scorer.update(examples[place : place + size], answers[place : place + size])
    return scorer.compute()


def text(number: int, answer: Any) -> TextExample:
    return TextExample((f"text {number}",), answer, f"file, line {number}")


@given(
    st.lists(st.tuples(*[st.sampled_from(LABELS)] * 2, st.floats(0, 1)), min_size=1, max_size=30),
    sizes,
)
@anything
def test_one_label(rows: list[tuple[str, str, float]], size: int) -> None:
    gold, guessed = [row[0] for row in rows], [row[1] for row in rows]
    examples = [text(n, label) for n, label in enumerate(gold)]
    answers = [{"label": label, "probability": chance} for _, label, chance in rows]
    found = score(Classify(ClassifyConfig(labels=LABELS), LabelledData()), examples, answers, size)
    assert found.metrics["accuracy"] == pytest.approx(sk.accuracy_score(gold, guessed))
    macro = sk.f1_score(gold, guessed, labels=LABELS, average="macro", zero_division=0)
    assert found.metrics["macro_f1"] == pytest.approx(macro)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's warning that there is only one label
        assert found.metrics["matthews"] == pytest.approx(sk.matthews_corrcoef(gold, guessed), abs=1e-12)
    assert found.constant == (len(set(guessed)) == 1 and len(set(gold)) > 1)
    dummy = DummyClassifier(strategy="most_frequent").fit(gold, gold)
    assert found.baseline == pytest.approx(sk.accuracy_score(gold, dummy.predict(gold)))
    assert found.learned_nothing == (found.constant or found.metrics["accuracy"] <= found.baseline)
    errors = found.details()[-1].rows  # type: ignore[union-attr]
    wrong = [n for n, (right, label, _) in enumerate(rows) if right != label]
    by_confidence = sorted(wrong, key=lambda n: -rows[n][2])
    assert [row[4] for row in errors] == [f"file, line {n}" for n in by_confidence[:WORST]]


@given(st.lists(st.tuples(*[st.sets(st.sampled_from(LABELS))] * 2), min_size=1, max_size=20), sizes)
@anything
def test_several_labels(rows: list[tuple[set[str], set[str]]], size: int) -> None:
    task = Classify(ClassifyConfig(labels=LABELS, multi_label=True), LabelledData())
    examples = [text(n, tuple(sorted(gold))) for n, (gold, _) in enumerate(rows)]
    found = score(task, examples, [{"labels": sorted(guessed)} for _, guessed in rows], size)
    gold, guessed = (np.array([[label in row[side] for label in LABELS] for row in rows]) for side in (0, 1))
    assert found.metrics["accuracy"] == pytest.approx(sk.accuracy_score(gold, guessed))
    sets = itertools.product([False, True], repeat=len(LABELS))
    constant = [sk.f1_score(gold, np.tile(one, (len(gold), 1)), average="micro", zero_division=0) for one in sets]
    assert found.baseline == pytest.approx(max(constant))
    for average in ("micro", "macro"):
        expected = sk.f1_score(gold, guessed, average=average, zero_division=0)
        assert found.metrics[f"{average}_f1"] == pytest.approx(expected)


numbers = st.floats(-100, 100).map(lambda number: round(number, 1))


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=40), sizes)
@anything
def test_numbers(rows: list[tuple[float, float]], size: int) -> None:
    gold, guessed = [row[0] for row in rows], [row[1] for row in rows]
    examples, answers = [text(n, number) for n, number in enumerate(gold)], [{"value": value} for value in guessed]
    found = score(Regress(RegressConfig(), LabelledData()), examples, answers, size).metrics
    assert found["mean_squared_error"] == pytest.approx(sk.mean_squared_error(gold, guessed))
    if len(set(gold)) > 1 and len(set(guessed)) > 1:
        assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(gold, guessed).statistic, abs=1e-6)
        assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(gold, guessed).statistic, abs=1e-9)
    else:
        assert np.isnan(found["pearson"]) and np.isnan(found["spearman"])


tags = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
sentences = st.lists(st.lists(st.tuples(tags, tags), min_size=1, max_size=6), min_size=1, max_size=8)


@given(sentences, sizes)
@anything
def test_entities(rows: list[list[tuple[str, str]]], size: int) -> None:
    """Ill-formed predictions too; entities of gold labels and of predictions are both read by `spans`."""
    labels = ["O", *(f"{prefix}-{kind}" for kind in ("LOC", "PER") for prefix in "BI")]
    task = Tag(TagConfig(labels=labels, entities=True), LabelledData())
    gold, guessed = ([[pair[side] for pair in row] for row in rows] for side in (0, 1))
    examples, answers = [], []
    for right, said in zip(gold, guessed, strict=True):
        words = [(3 * n, 3 * n + 2) for n in range(len(right))]
        blank = TaggedText("ab " * len(right), words, right)
        entities = [(e["start"], e["end"], e["label"]) for e in task.format_answer(blank, right, [1.0] * 9)["entities"]]
        examples.append(TaggedText(blank.text, words, right, entities))
        answers.append(task.format_answer(blank, said, [1.0] * 9))
    found = score(task, examples, answers, size).metrics
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, measure in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
            assert found[name] == pytest.approx(measure(gold, guessed, zero_division=0)), name


@given(sentences, sizes)
@anything
def test_labels_of_words(rows: list[list[tuple[str, str]]], size: int) -> None:
    task = Tag(TagConfig(labels=["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], entities=False), LabelledData())
    examples = [TaggedText("", [(0, 0)] * len(row), [gold for gold, _ in row]) for row in rows]
    found = score(task, examples, [{"tags": [said for _, said in row]} for row in rows], size)
    flat = list(itertools.chain.from_iterable(rows))
    expected = sk.accuracy_score([gold for gold, _ in flat], [said for _, said in flat])
    assert found.metrics == {"accuracy": pytest.approx(expected)}
    most = Counter(gold for gold, _ in flat).most_common(1)[0][1]
    assert found.baseline == pytest.approx(most / len(flat))
