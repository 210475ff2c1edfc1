"""What the guide pages say works: their files are written, their commands run, their Python executed, in order."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
PAGES = ("bulk", "classify", "regress", "tag", "answer", "choose", "family", "words", "lineage", "translate")
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [f"{page}{language}.md" for page in PAGES for language in ("", ".zh-CN")])
def test_the_page_runs(
    page: str,
    finished_run: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from keel.cli.main import run

    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished_run, "my-model")
    ran = 0
    for language, name, body in FENCE.findall((GUIDE / page).read_text(encoding="utf-8")):
        if name:
            (tmp_path / name).write_text(body, encoding="utf-8")
        elif language == "sh":
            for line in body.strip().splitlines():
                keel, *arguments = shlex.split(line)
                assert keel == "keel"
                assert run(arguments) == 0, (line, capfd.readouterr().err)
                ran += 1
        elif language == "python":
            exec(compile(body, page, "exec"), {})
            ran += 1
    assert ran >= 4
    out, _ = capfd.readouterr()
    assert out.strip()


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_have_the_same_commands(page: str) -> None:
    pages = [(GUIDE / f"{page}{language}.md").read_text(encoding="utf-8") for language in ("", ".zh-CN")]
    verbs = [[line.split()[:2] for _, _, body in FENCE.findall(found) for line in body.splitlines()] for found in pages]
    keel = [[words for words in one if words[:1] == ["keel"]] for one in verbs]
    assert keel[0] == keel[1]
