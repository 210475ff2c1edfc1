"""`keel translate`: translate texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import clean, say
from keel.errors import UserError

Texts = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Texts to translate; - reads lines from stdin.")
]
File = Annotated[str | None, typer.Option(metavar="FILE", help="Read the texts from a file, one per line (also .gz).")]
Beam = Annotated[int | None, typer.Option(min=1, metavar="N", help="Beam size; 1: greedy search.")]
LengthPenalty = Annotated[
    float | None, typer.Option(min=0, metavar="X", help="Length penalty; a higher one favours longer translations.")
]
AttentionMap = Annotated[
    str | None, typer.Option(metavar="FILE.svg", help="Also draw the cross-attention of one translation.")
]


def translate(
    model: common.ModelFolder,
    texts: Texts = None,
    file: File = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    attention: AttentionMap = None,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with scores instead of plain lines.")] = False,
) -> None:
    """Prints one translation per line, in the same order."""
    common.use_threads(threads)
    from keel.files.folders import check_absent
    from keel.inference import translate as stage

    if bool(texts) == bool(file):
        raise UserError("translate needs texts, or --file; not both")
    if attention:
        check_absent(Path(attention), "--attention")
    groups = _groups(texts or [], file)
    if attention:
        groups = [_one_text(groups)]
    opened = stage.open_translator(model, beam, length_penalty, device, allow_pickle)
    lines = _Lines(groups)
    try:
        for answers in stage.translate_groups(opened, lines, say):
            for text, answer in zip(lines.last, answers, strict=True):
                _print(text, answer, as_json)
            sys.stdout.flush()
            if attention:
                _draw(opened, lines.last[0], attention)
    finally:
        lines.say_blank()


class _Lines:
    """Groups of texts on their way to the translator: keeps the last one, and counts blank lines."""

    def __init__(self, groups: Iterable[list[str]]) -> None:
        self.groups, self.last, self.read, self.blank, self.first_blank = groups, list[str](), 0, 0, 0

    def __iter__(self) -> Iterator[list[str]]:
        for group in self.groups:
            self.last = group
            for text in group:
                self.read += 1
                if not text.strip():
                    self.blank += 1
                    self.first_blank = self.first_blank or self.read
            yield group

    def say_blank(self) -> None:
        if self.blank:
            say(f"{self.blank:,} of {self.read:,} lines are empty and stay empty; the first is line {self.first_blank}")


def _groups(texts: list[str], file: str | None) -> Iterable[list[str]]:
    from keel.batching import groups
    from keel.text.tables import unicode_lines

    if not file:
        return common.text_groups(texts, blank=True)
    for _ in unicode_lines(Path(file)):  # a line that cannot be read is reported before anything is translated
        continue
    return groups(unicode_lines(Path(file)), lambda text: 1, common.GROUP_LINES)


def _one_text(groups: Iterable[list[str]]) -> list[str]:
    given = [text for group in groups for text in group]
    if len(given) != 1:
        raise UserError(f"--attention draws one text, but {len(given)} were given")
    if not given[0].strip():
        raise UserError("--attention has nothing to draw: the text is empty")
    return given


def _print(text: str, answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        common.print_json({"text": text, **answer})
    else:
        line = " ".join(answer["translation"].splitlines())
        sys.stdout.write((clean(line) if sys.stdout.isatty() else line) + "\n")


def _draw(model: Any, text: str, file: str) -> None:
    from keel.inference import translate as stage
    from keel.reporting.drawing import svg
    from keel.reporting.heat_map import heat_map

    translation, map_ = stage.attention(model, text)
    drawn = heat_map(f"Cross-attention: {translation}", map_.written, map_.read, map_.mean)
    Path(file).write_text(svg(drawn), encoding="utf-8")
    say(f"cross-attention: {file}")


COMMAND = common.Command(
    translate,
    help="Translate texts.",
    order=130,
    examples=[
        'keel translate en-de "A dog runs through the snow."',
        "keel translate en-de --file test.en --beam 8 > test.de",
        'keel translate en-de "A dog runs through the snow." --attention map.svg',
    ],
)
