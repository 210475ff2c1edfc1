"""`keel translate`: translate texts."""

from __future__ import annotations

import sys
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
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with scores instead of plain lines.")] = False,
) -> None:
    """Prints one translation per line, in the same order."""
    from keel.folders import check_absent
    from keel.inference import translate as stage

    if bool(texts) == bool(file):
        raise UserError("translate needs texts, or --file; not both")
    if attention:
        check_absent(Path(attention), "--attention")
    given = _given(texts or [], file)
    if attention and len(given) != 1:
        raise UserError(f"--attention draws one text, but {len(given)} were given")
    blank = [number for number, text in enumerate(given, 1) if not text.strip()]
    if blank:
        say(f"{len(blank):,} of {len(given):,} lines are empty and stay empty; the first is line {blank[0]}")
    opened = stage.open_translator(model, beam, length_penalty, device, allow_pickle)
    if attention and blank:
        raise UserError("--attention has nothing to draw: the text is empty")
    if attention:
        _draw(opened, given[0], attention)
    for text, answer in zip(given, stage.translate(opened, given, say), strict=True):
        if as_json:
            common.print_json({"text": text, **answer})
        else:
            line = " ".join(answer["translation"].splitlines())
            sys.stdout.write((clean(line) if sys.stdout.isatty() else line) + "\n")


def _given(texts: list[str], file: str | None) -> list[str]:
    from keel.text.tables import unicode_lines

    return unicode_lines(Path(file)) if file else list(common.lines_or_arguments(texts, blank=True))


def _draw(model: Any, text: str, file: str) -> None:
    from keel.inference import translate as stage
    from keel.reporting.heat_map import heat_map

    translation, map_ = stage.attention(model, text)
    Path(file).write_text(heat_map(translation, map_.written, map_.read, map_.mean), encoding="utf-8")
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
