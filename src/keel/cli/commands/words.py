"""`keel words`: neighbours, analogies and evaluation of static word vectors; import and export."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from keel.cli import common

Vectors = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model folder, or vectors in word2vec's text or binary format.")
]
Count = Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of words.")]

group = typer.Typer()


@group.command(epilog=common.example("keel words similar my-vectors harbour", "keel words similar vectors.bin harbour"))
def similar(
    model: Vectors,
    words: Annotated[list[str], typer.Argument(metavar="WORD", help="Words to find neighbours of.")],
    count: Count = 10,
    as_json: common.Json = False,
) -> None:
    """Lists the nearest words by cosine similarity."""
    from keel.stages.word_vectors import WordVectors

    found = WordVectors.open(model)
    result = {word: found.similar(word, count) for word in words}
    if as_json:
        common.print_json(result)
        return
    for word, near in result.items():
        _show(word, near)


@group.command(epilog=common.example("keel words analogy my-vectors man king woman"))
def analogy(
    model: Vectors,
    a: Annotated[str, typer.Argument(metavar="A", help="A is to B ...")],
    b: Annotated[str, typer.Argument(metavar="B")],
    c: Annotated[str, typer.Argument(metavar="C", help="... as C is to the answer.")],
    count: Count = 10,
    as_json: common.Json = False,
) -> None:
    """Completes an analogy, A is to B as C is to ?: the words nearest to B - A + C."""
    from keel.stages.word_vectors import WordVectors

    found = WordVectors.open(model).analogy(a, b, c, count)
    if as_json:
        common.print_json(found)
    else:
        _show(f"{a} : {b} = {c} : ?", found)


@group.command(epilog=common.example("keel words evaluate my-vectors --similarity pairs.txt --analogies questions.txt"))
def evaluate(
    model: Vectors,
    similarity: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Word pairs with a human rating, one per line; repeatable.")
    ] = None,
    analogies: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Analogies A B C D, one per line; repeatable.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Scores vectors on word similarity and analogies."""
    from keel.stages.word_vectors import evaluate_words

    result = evaluate_words(model, similarity or [], analogies or [])
    if as_json:
        common.print_json(result)
        return
    scored = {name: found for name, found in result.items() if isinstance(found, dict)}
    rows: list[list[Any]] = [
        [name, *next(iter(found.items())), list(found.values())[1], found["left_out"]] for name, found in scored.items()
    ]
    common.print_table(model, ("file", "metric", "value", "items", "skipped"), rows, right=(2, 3, 4))


@group.command("export", epilog=common.example("keel words export my-vectors --out vectors.txt"))
def export_(
    model: Vectors,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Output file.")],
    binary: Annotated[bool, typer.Option("--binary", help="Use the binary format: smaller, and exact.")] = False,
    as_json: common.Json = False,
) -> None:
    """Writes vectors in the format that word2vec, gensim and fastText read."""
    from keel.stages.word_vectors import export_words

    common.print_result(f"vectors {out}", export_words(model, out, binary), as_json)


@group.command("import", epilog=common.example("keel words import vectors.bin --out my-vectors"))
def import_(
    vectors: Annotated[str, typer.Argument(metavar="FILE", help="Vectors in word2vec's text or binary format.")],
    out: common.Out,
    cased: Annotated[
        bool | None,
        typer.Option("--cased/--uncased", help="Keep capitals, or lower-case; default: by the words in FILE."),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Converts vectors into a model folder, for fine-tuning and comparisons."""
    from keel.stages.word_vectors import import_words

    result = import_words(vectors, out, None if cased is None else not cased)
    common.print_result(f"model {out}", result, as_json)


def _show(title: str, found: list[dict[str, Any]]) -> None:
    rows = [[row["word"], row["similarity"]] for row in found]
    common.print_table(title, ("word", "similarity"), rows, right=(1,))


COMMAND = common.Command(
    group,
    help="Query, evaluate, import and export word vectors.",
    order=90,
    examples=["keel words similar my-vectors harbour"],
)
