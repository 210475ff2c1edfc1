"""The pages about serving are true: their commands and Python run against the server that they start, and print what
the page shows, but for the last digits of numbers; the table of options is that of the command.

A console block has commands after `$ ` and their output; a Python block is followed by its output. Output that ends
with `...` goes on. After `<!-- output of another model -->` texts in quotes, and numbers, may be any.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from site_pages import DOCS, FENCE, NOT_RUN, SERVED

ADDRESS = "http://127.0.0.1:8080"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
QUOTED = re.compile(r'(?<=[:\[,])"(?:[^"\\]|\\.)*"(?=[,\]}]|$)')
OTHER_MODEL = re.compile(r"<!-- output of another model -->\s*\Z")
PLACES = {"my-model": "bert", "reviews": "classifier", "tagger": "tagger", "reader": "reader", "en-de": "translator"}
PLACES |= {"all-MiniLM-L6-v2": "minilm"}
OPTION = re.compile(r"^\| `(--[\w-]+)` \| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
DEFAULTS = {"none": None, "off": False, "cores / workers": None}


def check_output(printed: str, shown: str, loose: bool = False) -> None:
    """The same words, and numbers that differ by at most 0.05."""
    whole, shown = not shown.rstrip().endswith("..."), shown.rstrip().removesuffix("...")
    printed = printed.rstrip()
    if loose:
        printed, shown = (QUOTED.sub('""', text) for text in (printed, shown))
    words, expected = NUMBER.split(printed), NUMBER.split(shown)
    numbers = [list(map(float, NUMBER.findall(text))) for text in (printed, shown)]
    if not whole:
        words = [*words[: len(expected) - 1], words[len(expected) - 1][: len(expected[-1])]]
        numbers[0] = numbers[0][: len(numbers[1])]
    assert words == expected, printed
    assert loose or numbers[0] == pytest.approx(numbers[1], abs=0.05), printed


def sessions(body: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that it shows."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.parametrize("page", SERVED)
def test_the_page_runs(
    page: str, folders: dict[str, Path], start_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    monkeypatch.chdir(tmp_path)
    for name, model in PLACES.items():
        Path(name).symlink_to(folders[model])
    text, running, variables = (DOCS / page).read_text(encoding="utf-8"), None, dict[str, Any]()
    for fence, following in pairwise([*FENCE.finditer(text), None]):
        before, language, body = text[: fence.start()], fence[1], fence[3]
        if NOT_RUN.search(before) or fence[2]:
            continue
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(body.replace(ADDRESS, running.url), page, "exec"), variables)
            if following is not None and following[1] == "text" and not text[fence.end() : following.start()].strip():
                check_output(output.getvalue(), following[3])
        elif language in ("sh", "console"):
            for command, shown in sessions(body) if language == "console" else [(body, "")]:
                if command.startswith("keel serve "):
                    assert running is None, "one server per page"
                    running = start_server(*shlex.split(command, comments=True)[2:])
                    printed = running.log.with_name("out.txt").read_text()
                else:
                    command = command.replace(ADDRESS, running.url)
                    printed = subprocess.check_output(["bash", "-ec", command], text=True)
                if shown:
                    check_output(printed, shown.replace(ADDRESS, running.url), bool(OTHER_MODEL.search(before)))
    assert running is not None and running.stop() == 0


def options() -> dict[str, Any]:
    from keel.cli.commands.serve import serve

    app = typer.Typer(add_completion=False)
    app.command()(serve)
    return {one.opts[0]: one for one in typer.main.get_command(app).params if one.opts[0].startswith("--")}


@pytest.mark.parametrize("page", ["serving.md", "serving.zh-CN.md"])
def test_the_table_has_every_option(page: str) -> None:
    found = {one[1]: one for one in OPTION.finditer((DOCS / "guide" / page).read_text(encoding="utf-8"))}
    known = options()
    known.pop("--help", None)
    assert found.keys() == known.keys()
    for name, row in found.items():
        default, shown = known[name].default, row[3].strip()
        assert known[name].envvar == row[2]
        assert (DEFAULTS[shown] if shown in DEFAULTS else type(default)(shown)) == default, name


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from keel.cli.commands import serve

    given: list[Any] = []
    monkeypatch.setattr(serve, "_serve", lambda folders, settings: given.append(settings))
    values = {"PORT": "9000", "API_KEY": "a-key-for-tests", "CORS": "https://a.example https://b.example"}
    values |= {"DEVICE": "cpu", "QUIET": "1", "LOG_TEXTS": "true", "MAX_WAIT_MS": "2.5", "RUNS": str(tmp_path)}
    for name, value in values.items():
        monkeypatch.setenv(f"KEEL_{name}", value)
    app = typer.Typer(add_completion=False)
    app.command()(serve.serve)
    typer.main.get_command(app).main(["my-model", "--port", "9001"], standalone_mode=False)
    (found,) = given
    assert (found.port, found.api_key, found.device) == (9001, "a-key-for-tests", "cpu")
    assert found.cors == ("https://a.example", "https://b.example")
    assert found.quiet and found.log_texts and found.max_wait_ms == 2.5 and found.runs == tmp_path
