"""`keel explain`: what a model computes for a text: its attention, heads, layers, and what an answer rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.cli.explanations import print_explanation
from keel.console import clean, say
from keel.errors import UserError
from keel.explain.view import ALL, View

METHODS = ("attention", "heads", "layers", "attribution")
KINDS = (".html", ".svg", ".png", ".json")
SLOW = ("heads", "attribution")  # those that tell how far they are

Text = Annotated[str, typer.Argument(metavar="TEXT", help="A text; with [MASK] for a masked language model.")]
Pair = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="The second text; for choose once for each choice.")
]
Method = Annotated[str, typer.Option(metavar="|".join(METHODS), help="What to explain.")]
By = Annotated[
    str | None,
    typer.Option(metavar="integrated-gradients|occlusion", help="How attribution is computed; default: the first."),
]
Label = Annotated[str | None, typer.Option(metavar="L", help="Explain this label or choice, not the predicted one.")]
TokenOption = Annotated[str | None, typer.Option(metavar="T", help="Explain this token at [MASK], not the best one.")]
WordOption = Annotated[str | None, typer.Option(metavar="WORD", help="Explain the tag of this word.")]
From = Annotated[
    str | None, typer.Option("--from", metavar="WORD", help="Attention: where this word looks, in each head.")
]
To = Annotated[str | None, typer.Option(metavar="WORD", help="Attention: how much --from looks at this word.")]
Layer = Annotated[int | None, typer.Option(min=1, metavar="N", help="Attention: of this layer only.")]
Head = Annotated[int | None, typer.Option(min=1, metavar="N", help="Attention: of this head only.")]
Out = Annotated[
    str | None, typer.Option("--out", "-o", metavar="FILE", help="Write .html, .svg, .png or .json instead.")
]


def explain(
    model: common.ModelFolder,
    text: Text,
    pair: Pair = None,
    method: Method = "attention",
    by: By = None,
    label: Label = None,
    token: TokenOption = None,
    word: WordOption = None,
    from_word: From = None,
    to: To = None,
    layer: Layer = None,
    head: Head = None,
    out: Out = None,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Prints a table, or writes a page, a picture or JSON. Layers and heads are counted from 1.

    attention: how much each token attends to each other one, in every layer and head. heads: how the answer changes
    without each head. layers: what each layer would already answer. attribution: which words the answer rests on."""
    given = {"by": by, "label": label, "token": token, "word": word}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    view = View(layer, head, from_word, to)
    _check(method, options, view, out)
    common.use_threads(threads)
    from keel.files.folders import check_absent

    if out:
        check_absent(Path(out))
        if not Path(out).absolute().parent.is_dir():
            raise UserError(f"--out {clean(out)}: there is no folder {clean(Path(out).parent)}")
        if kind_of(out) == ".png":
            from keel.reporting.png import need_matplotlib

            need_matplotlib()
    import keel

    loaded = keel.load(model, allow_pickle=allow_pickle, device=device)
    second = pair[0] if pair and len(pair) == 1 else pair
    with common.progress(method, quiet=method not in SLOW) as report:
        if method in SLOW:
            options["report"] = report
        found = loaded.explain(text, second, method, **options)
    if out:
        _write(found, Path(out), view)
        say(f"{method}: {out}")
    if as_json:
        common.print_json(_json(found, view))
    elif not out:
        print_explanation(found, view)


def _check(method: str, options: dict[str, Any], view: View, out: str | None) -> None:
    """Before torch is imported."""
    from keel.errors import suggest

    takes = {"attention": set[str](), "layers": set[str](), "heads": {"label", "token", "word"}}
    takes["attribution"] = takes["heads"] | {"by"}
    if method not in METHODS:
        raise UserError(f"there is no method '{clean(method)}' to explain with.{suggest(method, METHODS)}")
    for name in options:
        if name not in takes[method]:
            able = [other for other in METHODS if name in takes[other]]
            raise UserError(f"--{name} is an option of --method {' and '.join(able)}, not of {method}; leave it out")
    for name, value in view.given().items():
        if method != "attention" and value is not None:
            raise UserError(f"--{name} chooses attention; --method {method} does not take it")
    if view.to is not None and view.start is None:
        raise UserError("--to needs --from: the word that looks at it")
    if out and kind_of(out) not in KINDS:
        raise UserError(f"--out {clean(out)}: the name must end with {', '.join(KINDS[:-1])} or {KINDS[-1]}")


def _json(found: Any, view: View) -> dict[str, Any]:
    if view == ALL:
        return dict(found.as_json())
    return dict(found.as_json(layers=view.layers, heads=view.heads, start=view.start, to=view.to))


def kind_of(out: str) -> str:
    return Path(out).suffix.lower()


def _write(found: Any, out: Path, view: View) -> None:
    import json

    from keel.explain.page import page
    from keel.explain.pictures import picture
    from keel.files.folders import creating
    from keel.reporting.drawing import svg
    from keel.reporting.png import write_png

    kind, missing = kind_of(out.name), ""
    with creating(out) as file:
        if kind == ".html":
            file.write_text(page(found, view), encoding="utf-8")
        elif kind == ".svg":
            file.write_text(svg(picture(found, view)), encoding="utf-8")
        elif kind == ".png":
            missing = write_png(picture(found, view), file)
        else:
            file.write_text(json.dumps(_json(found, view), ensure_ascii=False) + "\n", encoding="utf-8")
    if missing:
        say(f"{out}: no font of this machine has {clean(missing)}: they are empty boxes; an .svg has them")


COMMAND = common.Command(
    explain,
    help="Show attention, heads, layers, and what an answer rests on.",
    order=75,
    examples=[
        'keel explain my-model "The animal did not cross the street because it was tired."',
        'keel explain my-model "The animal did not cross the street because it was tired." --from it --to animal',
        'keel explain my-model "Paris is the [MASK] of France." --method layers',
        'keel explain my-classifier "What a lovely film." --method attribution --out why.html',
    ],
)
