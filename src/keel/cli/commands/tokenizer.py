"""`keel tokenizer`: train a tokenizer, and measure how well it fits a text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from keel.cli import common

UNKNOWN_SHOWN = 15
KINDS = "wordpiece (BERT), words (word2vec), byte-bpe (RoBERTa) or byte-fallback (word pieces and bytes)."

Kind = Annotated[str, typer.Option(metavar="KIND", help=KINDS)]
VocabSize = Annotated[int, typer.Option(min=1, metavar="N", help="Vocabulary size, special tokens included.")]
Cased = Annotated[bool, typer.Option("--cased/--uncased", help="Keep capitals, or lower-case everything.")]
KeepAccents = Annotated[
    bool, typer.Option("--keep-accents", help="Keep accents when lower-casing; --cased always keeps them.")
]
MinFrequency = Annotated[int, typer.Option(min=1, metavar="N", help="Minimum frequency of an entry.")]

group = typer.Typer()


@group.command(
    epilog=common.example(
        "keel tokenizer train texts/ --vocab-size 16000 --out my-tokenizer",
        "keel tokenizer train zhwiki.jsonl.gz --column text --vocab-size 21128 --out zh-tokenizer",
        "keel tokenizer train texts/ --kind byte-bpe --vocab-size 16000 --out bytes-tokenizer",
    )
)
def train(
    texts: common.Texts,
    out: common.Out,
    kind: Kind = "wordpiece",
    vocab_size: VocabSize = 30522,
    cased: Cased = False,
    keep_accents: KeepAccents = False,
    min_frequency: MinFrequency = 2,
    documents: common.Documents = "auto",
    column: common.Column = "text",
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Trains a tokenizer on your texts. The byte kinds always keep capitals and accents."""
    from keel.stages.tokenizer import train as run

    with common.progress("tokenizer", quiet) as report:
        result = run(
            texts,
            out,
            kind=kind,
            vocab_size=vocab_size,
            lowercase=not cased,
            strip_accents=False if keep_accents else None,  # None, as published: stripped when lower-casing
            min_frequency=min_frequency,
            documents=documents,
            column=column,
            report=report,
        )
    if as_json:
        common.print_json(result)
    else:
        common.print_facts(f"tokenizer {out}", result)


@group.command(epilog=common.example("keel tokenizer inspect my-tokenizer texts/*.txt"))
def inspect(
    tokenizer: Annotated[
        str, typer.Argument(metavar="DIR", help="A tokenizer folder, a model folder, or a vocab.txt.")
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Files, folders or globs to tokenize.")
    ] = None,
    documents: common.Documents = "auto",
    column: common.Column = "text",
    as_json: common.Json = False,
) -> None:
    """Shows tokens per word and per character, and the characters that become [UNK]."""
    from keel.stages.tokenizer import inspect as run

    result = run(tokenizer, texts or [], documents=documents, column=column)
    if as_json:
        common.print_json(result)
    else:
        _print_inspection(tokenizer, result)


def _print_inspection(path: str, result: dict[str, Any]) -> None:
    facts = dict(result)
    if facts.get("unknown_share") is not None:
        facts["unknown_share"] = common.percent(facts["unknown_share"])
    common.print_facts(f"tokenizer {path}", facts)
    characters, words = result.get("unknown_characters") or [], result.get("unknown_words") or []
    if characters:
        rows = [(u["character"], u["codepoint"], u["name"], u["count"]) for u in characters[:UNKNOWN_SHOWN]]
        common.print_table("characters that become [UNK]", ("character", "code", "name", "count"), rows, right=(3,))
        if len(characters) > UNKNOWN_SHOWN:
            typer.echo(f"and {len(characters) - UNKNOWN_SHOWN:,} more: --json lists all")
    if words:
        counts = [(u["word"], u["count"]) for u in words[:UNKNOWN_SHOWN]]
        common.print_table("words that become [UNK]", ("word", "count"), counts, right=(1,))


COMMAND = common.Command(
    group,
    help="Train and inspect tokenizers.",
    order=30,
    examples=["keel tokenizer train texts/ --out my-tokenizer"],
)
