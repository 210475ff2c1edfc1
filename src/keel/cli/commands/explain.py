"""`keel explain`: what a model computes for a text: its attention, heads, layers, and what an answer rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import clean, say
from keel.errors import UserError

METHODS = ("attention", "heads", "layers", "attribution")
KINDS = (".html", ".svg", ".png", ".json")
BAR = 20  # characters of the longest bar

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
Layer = Annotated[int | None, typer.Option(min=1, metavar="N", help="Show attention of this layer.")]
Head = Annotated[int | None, typer.Option(min=1, metavar="N", help="Show attention of this head.")]
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
    layer: Layer = None,
    head: Head = None,
    out: Out = None,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Prints a table, or writes a page, a picture or JSON. Layers and heads are counted from 1."""
    given = {"by": by, "label": label, "token": token, "word": word}
    options = {name: value for name, value in given.items() if value is not None}
    _check(method, options, layer, head, out)
    common.use_threads(threads)
    from keel.files.folders import check_absent

    if out:
        check_absent(Path(out))
        if out.endswith(".png"):
            from keel.explain.pictures import need_matplotlib

            need_matplotlib()
    import keel

    loaded = keel.load(model, allow_pickle=allow_pickle, device=device)
    second = pair[0] if pair and len(pair) == 1 else pair
    found = loaded.explain(text, second, method, **options)
    if out:
        _write(found, Path(out), layer, head)
        say(f"{method}: {out}")
    if as_json:
        common.print_json(_json(found, layer, head))
    elif not out:
        _print(found, layer, head)


def _check(method: str, options: dict[str, str], layer: int | None, head: int | None, out: str | None) -> None:
    """Before torch is imported."""
    from keel.errors import suggest

    takes = {"attention": set[str](), "layers": set[str](), "heads": {"label", "token", "word"}}
    takes["attribution"] = takes["heads"] | {"by"}
    if method not in METHODS:
        raise UserError(f"there is no method '{clean(method)}' to explain with.{suggest(method, METHODS)}")
    for name in options:
        if name not in takes[method]:
            raise UserError(f"--{name} is not an option of --method {method}; leave it out")
    if method != "attention" and (layer is not None or head is not None):
        raise UserError(f"--layer and --head choose an attention map; --method {method} shows all of them")
    if out and Path(out).suffix not in KINDS:
        raise UserError(f"--out {clean(out)}: the name must end with {', '.join(KINDS)}")


def _json(found: Any, layer: int | None, head: int | None) -> dict[str, Any]:
    if layer is None and head is None:
        return dict(found.as_json())
    one = {"layers": None if layer is None else [layer], "heads": None if head is None else [head]}
    return dict(found.as_json(**one))


def _write(found: Any, out: Path, layer: int | None, head: int | None) -> None:
    import json

    from keel.explain.page import page
    from keel.explain.pictures import grid, svg, write_png
    from keel.files.folders import creating

    with creating(out) as file:
        if out.suffix == ".html":
            file.write_text(page(found, layer, head), encoding="utf-8")
        elif out.suffix == ".svg":
            file.write_text(svg(grid(found, layer, head)), encoding="utf-8")
        elif out.suffix == ".png":
            write_png(grid(found, layer, head), file)
        else:
            file.write_text(json.dumps(_json(found, layer, head), ensure_ascii=False) + "\n", encoding="utf-8")


def _print(found: Any, layer: int | None, head: int | None) -> None:
    from keel.explain.attention import AttentionMaps
    from keel.explain.attribution import Attribution
    from keel.explain.heads import HeadChanges
    from keel.explain.layers import LayerAnswers

    if isinstance(found, AttentionMaps):
        _print_attention(found, layer, head)
    elif isinstance(found, HeadChanges):
        typer.echo(clean(f"with all heads, the {found.answer['name']} is {found.value:.4g}"))
        rows = [(n, h, f"{change:+.4f}") for n, h, change in found.ranked()[:20]]
        common.print_table(found.measure, ("layer", "head", "change"), rows, right=(0, 1, 2))
    elif isinstance(found, LayerAnswers):
        _print_layers(found)
    elif isinstance(found, Attribution):
        _print_attribution(found)
    else:
        rows = [(n, place, f"{s:.3f}") for place, shares in found.shares.items() for n, s in enumerate(shares)]
        common.print_table("no attention; the shares of the layers", ("layer", "place", "share"), rows, right=(0, 2))


def _print_attention(found: Any, layer: int | None, head: int | None) -> None:
    from keel.explain.page import link

    labels = found.reading.labels
    if found.cross is not None:
        best = found.cross.mean.argmax(1)
        rows = [(name, found.cross.read[n]) for name, n in zip(found.cross.written, best, strict=True)]
        common.print_table("cross-attention: each token looks at", ("translation", "source"), rows)
    if not len(found.weights):
        return
    if layer is not None and head is not None:
        weights = found.map(layer, head)
        rows = [
            (name, ", ".join(f"{labels[j]} {row[j]:.2f}" for j in (-row).argsort(kind="stable")[:4]))
            for name, row in zip(labels, weights, strict=True)
        ]
        common.print_table(f"layer {layer}, head {head}: each token looks at", ("token", "tokens"), rows)
        return
    lines = [
        (
            one.layer,
            one.head,
            f"{one.entropy:.2f}",
            common.percent(one.special),
            ", ".join(link(labels, x) for x in one.links),
        )
        for one in found.summaries(layer, head)
    ]
    columns = ("layer", "head", "entropy (bits)", "on special", "strongest links between words")
    common.print_table("attention", columns, lines, right=(0, 1, 2, 3))


def _print_layers(found: Any) -> None:
    for number, one in enumerate(found.places, 1):
        asked = {"label": "label", "next token": "next token"}.get(found.kind, f"[MASK] {number}")
        title = f"{asked}: {one.final}, first from layer {one.from_layer} on"
        rows = [
            (n, common.percent(one.final_probability[n]), ", ".join(guess.text for guess in guesses))
            for n, guesses in enumerate(one.guesses)
        ]
        common.print_table(title, ("layer", "its probability", "guesses"), rows, right=(0, 1))


def _print_attribution(found: Any) -> None:
    from keel.explain.page import facts_of

    most = max((abs(float(score)) for score in found.word_scores), default=0.0) or 1.0
    rows = []
    for word, score in zip(found.reading.words, found.word_scores.tolist(), strict=True):
        rows.append((word.text, f"{score:+.4f}", ("+" if score >= 0 else "-") * round(BAR * abs(score) / most)))
    common.print_table("+ speaks for the answer, - against it", ("word", "score", ""), rows, right=(1,))
    facts = [(name, f"{v:.4g}" if isinstance(v, float) else v) for name, v in facts_of(found) if v is not None]
    common.print_table("", ("", ""), facts)


COMMAND = common.Command(
    explain,
    help="Show attention, heads, layers, and what an answer rests on.",
    order=75,
    examples=[
        'keel explain my-model "The animal did not cross the street because it was tired."',
        'keel explain my-model "Paris is the [MASK] of France." --method layers',
        'keel explain my-classifier "What a lovely film." --method attribution --out why.html',
    ],
)
