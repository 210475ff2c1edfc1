"""`keel translate`: texts in another language."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from keel.cli import common
from keel.errors import UserError

EXAMPLE = common.example(
    'keel translate en-de "A dog runs through the snow."',
    "keel translate en-de --file test.en --beam 8 > test.de",
    'keel translate en-de "A dog runs through the snow." --attention map.svg',
)


def translate(
    model: common.ModelFolder,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to translate; - reads lines from stdin.")
    ] = None,
    file: Annotated[str | None, typer.Option(metavar="FILE", help="A file of lines instead (also .gz).")] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Candidates of the search; 1: always the likeliest token.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0, metavar="X", help="More favours longer translations.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(metavar="FILE.svg", help="Also draw where the translator looked, for one text.")
    ] = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with scores instead of plain lines.")] = False,
) -> None:
    """Prints one translation a line, in the given order."""
    from keel.checkpoint import check_absent
    from keel.stages import translate as stage
    from keel.text.tables import unicode_lines

    if bool(texts) == bool(file):
        raise UserError("translate needs texts, or --file; not both")
    if attention:
        check_absent(Path(attention), "--attention")
    given = unicode_lines(Path(file)) if file else list(common.lines_or_arguments(texts or [], blank=True))
    if attention and len(given) != 1:
        raise UserError(f"--attention draws one text, and {len(given)} were given")
    blank = [number for number, text in enumerate(given, 1) if not text.strip()]
    if blank:
        common.say(f"{len(blank):,} of {len(given):,} lines are empty and stay so; the first is line {blank[0]}")
    opened = stage.open_translator(model, beam, length_penalty, device, allow_pickle)
    if attention and blank:
        raise UserError("--attention has nothing to draw: the text is empty")
    if attention:
        from keel.reporting.heat_map import heat_map

        translation, map_ = stage.attention(opened, given[0])
        Path(attention).write_text(heat_map(translation, map_.written, map_.read, map_.mean), encoding="utf-8")
        common.say(f"where it looked: {attention}")
    for text, answer in zip(given, stage.translate(opened, given, common.say), strict=True):
        if as_json:
            common.print_json({"text": text, **answer})
        else:
            line = " ".join(answer["translation"].splitlines())
            sys.stdout.write((common.clean(line) if sys.stdout.isatty() else line) + "\n")
