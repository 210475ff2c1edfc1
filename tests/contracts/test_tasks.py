"""Every task keeps its contract with every backbone, with all its options, with and without answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keel import catalog
from keel.testing.contracts import TASK_CHECKS
from keel.testing.small import small_task
from keel.testing.task_checks import Check
from keel.testing.task_variants import TASK_VARIANTS, variants_of
from keel.values import Examples

BACKBONES, NAMES = catalog.names("backbones"), catalog.names("tasks")
each_check = pytest.mark.parametrize("check", TASK_CHECKS, ids=lambda check: check.__name__)
each_variant = pytest.mark.parametrize(
    ("task", "options"),
    [(task, options) for task in NAMES for options in variants_of(task)],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value),
)
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "w10 w11 w12 w13",
                    "qas": [
                        {"id": "1", "question": "w20 w21", "answers": [{"text": "w11 w12", "answer_start": 4}]},
                        {"id": "2", "question": "w22", "answers": [{"text": "w10", "answer_start": 0}]},
                    ],
                }
            ]
        }
    ]
}
# Labelled files of the built-in tasks; any other task is checked with examples without answers alone.
FILES: dict[str, tuple[str, str]] = {
    "answer": ("answer.json", json.dumps(SQUAD)),
    "choose": (
        "choose.jsonl",
        '{"text": "w10 w11", "choices": ["w12", "w13 w14"], "label": 1}\n'
        '{"text": "w15", "choices": ["w16 w17", "w18", "w19"], "label": 0}\n',
    ),
    "classify": ("classify.tsv", "text\tlabel\nw10 w11 w12\ta\nw13 w14\tb\nw15\tc\nw16 w17\ta\n"),
    "regress": ("regress.tsv", "text\tlabel\nw10 w11 w12\t0.5\nw13 w14\t-1\nw15\t3\n"),
    "tag": ("tag.conll", "w10 B-x\nw11 I-x\nw12 O\n\nw13 O\nw14 B-x\n\n"),
    "translate": ("translate.tsv", "text\tlabel\nw10 w11 w12\tw20 w21\nw13 w14\tw22 w23 w24\nw15 w16\tw25\n"),
}


@each_variant
@pytest.mark.parametrize("backbone", BACKBONES)
@each_check
def test_a_task_keeps_its_contract(check: Check, backbone: str, task: str, options: dict[str, Any]) -> None:
    check(backbone, task, options, ())


@each_variant
@each_check
def test_a_task_keeps_its_contract_with_answers(
    check: Check, task: str, options: dict[str, Any], tmp_path: Path
) -> None:
    if task not in FILES:
        pytest.skip("no labelled file of this task")
    name, text = FILES[task]
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = Examples.of(small_task(task, options, 32).open(str(tmp_path / name)))
    assert len(found.examples) > 1 and not found.rejected
    check("bert", task, options, found.examples)


def test_every_variant_is_of_a_task() -> None:
    assert set(TASK_VARIANTS) <= set(NAMES) and {"classify", "tag"} <= set(NAMES)
