"""How well do the sentence vectors of `embed` order sentence pairs by similarity (STS-B), without fine-tuning?

    python bench/sentence_similarity.py --model all-MiniLM-L6-v2 --data stsb-en-test.csv [--text 1 --pair 2 --label 3]

In: a model folder and a file of sentence pairs with a human score each. Out: Spearman's correlation of the scores and
the cosines of Keel's vectors; the same by a reference library; the largest difference between two components of unit
vectors.

Notable choices
- The reference is sentence-transformers, which pools as the folder says, or else transformers with the mean over the
  tokens. If neither is installed only Keel's figure is printed. Its texts are truncated at its own limit; `embed`
  refuses a text that is too long.
- Vectors are compared after scaling to length 1, as sentence-transformers may return them; cosines do not depend on it.
- A row that cannot be used ends the script: a correlation over fewer pairs is another figure.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

import keel
from keel.errors import Rejected
from keel.metrics.correlation import spearman
from keel.text.tables import read_table


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="folder of a sentence encoder")
    options.add_argument("--data", required=True, help=".csv, .tsv or .jsonl of sentence pairs and scores")
    options.add_argument("--text", default="1", help="column of the first sentence; a number: there is no header")
    options.add_argument("--pair", default="2", help="column of the second sentence")
    options.add_argument("--label", default="3", help="column of the score")
    options.add_argument("--pooling", default="mean", choices=["mean", "cls"], help="Keel's pooling")
    given = options.parse_args()

    texts, scores = read_pairs(given.data, {"text": given.text, "pair": given.pair, "label": given.label})
    print(f"{len(scores):,} pairs")
    ours = unit(keel.load(given.model).embed(texts, given.pooling))
    print(f"keel {keel.__version__}: Spearman {similarity_score(ours, scores):.4f}")
    for library, embed in (("sentence-transformers", by_sentence_transformers), ("transformers", by_transformers)):
        if find_spec(library.replace("-", "_")):
            theirs = unit(embed(given.model, texts))
            print(f"{library} {version(library)}: Spearman {similarity_score(theirs, scores):.4f}")
            print(f"largest difference of unit vectors: {np.abs(ours - theirs).max():.1e}")
            return
    print("neither sentence-transformers nor transformers is installed: not compared")


def read_pairs(path: str, columns: dict[str, str]) -> tuple[list[str], list[float]]:
    """All first sentences, then all second ones; and the scores."""
    first, second, scores = list[str](), list[str](), list[float]()
    for row in read_table(path, columns):
        if isinstance(row, Rejected):
            raise SystemExit(str(row))
        first.append(row.fields["text"])
        second.append(row.fields["pair"])
        scores.append(float(row.fields["label"]))
    return first + second, scores


def unit(vectors: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def similarity_score(vectors: np.ndarray, scores: list[float]) -> float:
    """Spearman's correlation of the cosines of first and second half with the scores."""
    first, second = np.split(vectors, 2)
    return spearman((first * second).sum(1), scores)


def by_sentence_transformers(folder: str, texts: list[str]) -> np.ndarray:
    import sentence_transformers

    vectors: np.ndarray = sentence_transformers.SentenceTransformer(folder, device="cpu").encode(texts)
    return vectors


def by_transformers(folder: str, texts: list[str]) -> np.ndarray:
    """The mean over a text's tokens, [CLS] and [SEP] included, in padded batches."""
    import torch
    import transformers

    model: Any = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    found = []
    with torch.inference_mode():
        for start in range(0, len(texts), 32):
            batch = tokenizer(texts[start : start + 32], padding=True, truncation=True, return_tensors="pt")
            mask = batch["attention_mask"][:, :, None]
            found.append(((model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(found)


if __name__ == "__main__":
    main()
