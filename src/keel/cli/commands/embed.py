"""`keel embed`: one vector per text, in a .npy file."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common


def embed(
    model: common.ModelFolder,
    file: Annotated[str, typer.Option(metavar="FILE", help="Texts: .txt with one per line, or .jsonl .csv .tsv.")],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE.npy", help="Output file, an array of shape (texts, width).")
    ],
    text: common.TextColumn = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="mean|cls|max",
            help="Over the tokens, or the vector of [CLS]; default: as a sentence-transformers folder says, else mean.",
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="Vectors of length 1; default: as the folder says, else no."),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="NAME", help="Put this prompt of a sentence-transformers folder before texts.")
    ] = None,
    layers: Annotated[str, typer.Option(metavar="N,N", help="Layers to average: 0 embeddings, -1 the last.")] = "-1",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an --out that was interrupted, or begin it.")
    ] = False,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Writes one vector for each text of a file."""
    common.use_threads(threads)
    from keel.stages.embed import embed as run

    with common.progress("embed", quiet) as report:
        result = run(
            model,
            file,
            out,
            column=text,
            pooling=pooling,
            normalize=normalize,
            prompt=prompt,
            layers=layers,
            resume=resume,
            threads=threads,
            device=device,
            allow_pickle=allow_pickle,
            report=report,
        )
    common.print_result(f"vectors {out}", result, as_json)


COMMAND = common.Command(
    embed,
    help="Compute one vector per text.",
    order=140,
    examples=[
        "keel embed my-model --file sentences.txt --out vectors.npy",
        "keel embed my-model --file texts.jsonl --out vectors.npy --pooling cls --layers 3,4",
    ],
)
