"""`keel corpus build` and `keel corpus inspect`.

In: text files and a tokenizer, or a corpus folder. Out: the account; or what a person wants to know before training:
lengths, duplicates, and rows packed and masked exactly as the model will see them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keel.corpus.store import Corpus

GROUPS_SHOWN = 20


def build(
    texts: Sequence[str],
    tokenizer: str,
    out: str,
    *,
    documents: str = "auto",
    column: str = "text",
    language: str = "auto",
    workers: int | None = None,
    held_out: float = 0.01,
    report: Callable[[Any], None] | None = None,
) -> dict[str, Any]:
    """One streaming pass over the texts. Torch stays out of this: its memory would count in every process."""
    from keel.corpus.build import build as run
    from keel.text.readers import find_files
    from keel.tokenizers.folder import open_tokenizer

    return run(
        find_files(texts),
        open_tokenizer(tokenizer),
        Path(out),
        documents=documents,
        column=column,
        language=language,
        workers=workers,
        held_out=held_out,
        report=report,
    )


def inspect(path: str, *, examples: int = 3, recipe: str = "bert-mini", seed: int = 0) -> dict[str, Any]:
    corpus = Corpus.open(path)
    result: dict[str, Any] = {
        "documents": corpus.documents,
        "sentences": corpus.sentences,
        "tokens": corpus.tokens,
        "held_out_documents": int(corpus.held_out.sum()),
        "account": corpus.info["account"],
        "lengths": _histogram(corpus.document_tokens),
        "duplicates": _duplicates(corpus),
    }
    if examples:
        result["examples"] = _examples(path, examples, recipe, seed)
    return result


def _histogram(lengths: np.ndarray) -> list[dict[str, int]]:
    """Documents by length, in bins that double."""
    bins, low = [], 1
    while len(lengths) and low <= lengths.max():
        inside = int(((lengths >= low) & (lengths < 2 * low)).sum())
        bins.append({"from": low, "to": 2 * low - 1, "documents": inside})
        low *= 2
    return bins


def _duplicates(corpus: Corpus) -> dict[str, Any]:
    """Documents whose text occurred before, and the largest groups of equal ones by their numbers in the corpus."""
    values, counts = np.unique(corpus.hashes, return_counts=True)
    groups = []
    for place in np.argsort(-counts, kind="stable")[:GROUPS_SHOWN]:
        if counts[place] > 1:
            members = np.flatnonzero(corpus.hashes == values[place])[:10].tolist()
            groups.append({"copies": int(counts[place]), "documents": members})
    return {"documents": int((counts - 1).sum()), "groups": groups}


def _examples(path: str, count: int, recipe_name: str, seed: int) -> list[dict[str, Any]]:
    import torch

    from keel.catalog import find
    from keel.corpus.stream import Cursor
    from keel.recipe import load
    from keel.stages.data import open_data
    from keel.training.model_folder import assemble

    data = open_data(load(recipe_name, [f"training.seed={seed}", "model.backbone.vocabulary=null"]), path, None)
    rows, _ = data.streams["main"].take(Cursor(), count * data.recipe.data.length)
    backbone = data.recipe.model.backbone
    with torch.device("meta"):  # masking needs the objectives' settings, not their weights
        learner = assemble(find("backbones", backbone.kind)(backbone), dict(data.recipe.model.objectives))  # type: ignore[attr-defined]
    batch = learner.prepare(rows, data.tokenizer)
    shown = []
    stops = np.cumsum(rows.lengths)
    for row in range(min(count, len(rows.lengths))):
        part = slice(int(stops[row] - rows.lengths[row]), int(stops[row]))
        shown.append(_example(rows.ids[part], batch.ids[part].numpy(), batch.segments[part].tolist(), data.tokenizer))
        if "next_sentence" in rows.answers:
            shown[-1]["next_sentence"] = ("follows", "random")[int(rows.answers["next_sentence"][row])]
        places = batch.targets.get("masked_lm.places")
        if places is not None:
            kept = [int(p) - part.start for p in places if part.start <= p < part.stop]
            for place in kept:
                shown[-1]["marks"][place] = shown[-1]["marks"][place] or "keep"
                shown[-1]["targets"][place] = data.tokenizer.shown(int(rows.ids[part][place]))
    return shown


def _example(answers: np.ndarray, seen: np.ndarray, segments: list[int], tokenizer: Any) -> dict[str, Any]:
    marks = []
    for answer, token in zip(answers, seen, strict=True):
        marks.append("" if answer == token else "mask" if token == tokenizer.mask else "random")
    return {
        "tokens": [tokenizer.shown(int(t)) for t in seen],
        "marks": marks,
        "targets": [""] * len(seen),
        "segments": segments,
    }
