"""`keel corpus build` and `keel corpus inspect`.

In: text files and a tokenizer, or a corpus folder. Out: the account of the documents; or statistics to check before
training: lengths, duplicates, and some rows, packed and masked exactly as the model will see them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keel.corpus.store import Corpus

GROUPS_SHOWN = 20
ROWS_COUNTED = 200  # rows used to estimate the share of masked tokens


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
    """One streaming pass over the texts. Does not import torch, which would take memory in every worker."""
    from keel.corpus.build import build as run
    from keel.hugging_face.cache import find_folder
    from keel.text.readers import find_files
    from keel.tokenizers.folder import open_tokenizer

    account = run(
        find_files(texts),
        open_tokenizer(find_folder(tokenizer)),
        Path(out),
        documents=documents,
        column=column,
        language=language,
        workers=workers,
        held_out=held_out,
        report=report,
    )
    if report and documents == "auto" and account["kept"] == 1:
        report("only one document, so none is held out; a .txt file is one: try --documents paragraph or line")
    return account


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
        rows = _Prepared(path, recipe, seed, max(examples, ROWS_COUNTED))
        result["masking"] = rows.masking()
        result["examples"] = [rows.example(number) for number in range(min(examples, len(rows.rows.lengths)))]
    return result


def _histogram(lengths: np.ndarray) -> list[dict[str, int]]:
    """Number of documents by length, in bins whose width doubles."""
    bins, low = [], 1
    while len(lengths) and low <= lengths.max():
        inside = int(((lengths >= low) & (lengths < 2 * low)).sum())
        bins.append({"from": low, "to": 2 * low - 1, "documents": inside})
        low *= 2
    return bins


def _duplicates(corpus: Corpus) -> dict[str, Any]:
    """How many documents repeat an earlier text, and the largest groups of duplicates, by document number."""
    values, counts = np.unique(corpus.hashes, return_counts=True)
    groups = []
    for place in np.argsort(-counts, kind="stable")[:GROUPS_SHOWN]:
        if counts[place] > 1:
            members = np.flatnonzero(corpus.hashes == values[place])[:10].tolist()
            groups.append({"copies": int(counts[place]), "documents": members})
    return {"documents": int((counts - 1).sum()), "groups": groups}


class _Prepared:
    """Rows packed and masked as in a run of this recipe."""

    def __init__(self, path: str, recipe_name: str, seed: int, count: int) -> None:
        from keel.corpus.stream import Cursor
        from keel.learner.build import assemble, make_backbone
        from keel.learner.no_weights import no_weights
        from keel.pretraining.data import open_data
        from keel.recipe import load

        data = open_data(load(recipe_name, [f"training.seed={seed}", "model.backbone.vocabulary=null"]), path, None)
        self.tokenizer, self.recipe = data.tokenizer, recipe_name
        self.rows, _ = data.streams["main"].take(Cursor(), count * data.recipe.data.length)
        with no_weights():  # masking needs the objectives' settings, not their weights
            learner = assemble(make_backbone(data.recipe.model.backbone), data.recipe.model.objectives)
        self.batch = learner.prepare(self.rows, self.tokenizer)
        hidden = [k for k in ("masked_lm.places", "replaced_token.generator.places") if k in self.batch.targets]
        self.chosen = np.zeros(len(self.rows.ids), bool)
        for key in hidden:
            self.chosen[self.batch.targets[key].numpy()] = True

    def masking(self) -> dict[str, Any]:
        """How many tokens are selected, out of how many, and the share of them whose complete word is selected."""
        from keel.objectives._masking import WordGroups, ordinary_tokens

        ordinary = ordinary_tokens(self.rows, self.tokenizer)
        words = WordGroups.of(self.rows, ordinary)
        counts = np.bincount(words.of_token, weights=self.chosen, minlength=len(words.size))
        whole = (counts == words.size)[words.of_token]
        return {
            "recipe": self.recipe,
            "rows": len(self.rows.lengths),
            "tokens": int(ordinary.sum()),
            "chosen": int(self.chosen.sum()),
            "chosen_share": float(self.chosen.sum() / max(1, ordinary.sum())),
            "in_whole_words": float(whole[self.chosen].mean()) if self.chosen.any() else None,
        }

    def example(self, number: int) -> dict[str, Any]:
        start = int(self.rows.starts[number])
        part = slice(start, start + self.rows.lengths[number])
        answers, seen = self.rows.ids[part], self.batch.ids[part].numpy()
        marks, targets = [], []
        for answer, token, chosen in zip(answers, seen, self.chosen[part], strict=True):
            kind = "" if answer == token else "mask" if token == self.tokenizer.mask else "random"
            marks.append(kind or ("keep" if chosen else ""))
            targets.append(self.tokenizer.shown(int(answer)) if chosen else "")
        shown = {
            "tokens": [self.tokenizer.shown(int(token)) for token in seen],
            "marks": marks,
            "targets": targets,
            "segments": self.batch.segments[part].tolist(),
            "spaced": self.tokenizer.kind != "wordpiece",
        }
        labels = {"next_sentence": ("follows", "random"), "sentence_order": ("as written", "swapped")}
        return shown | {
            name: labels[name][int(values[number])] for name, values in self.rows.answers.items() if name in labels
        }
