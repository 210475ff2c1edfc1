"""Speed of `keel corpus build` compared with `tokenizers`' `encode_batch`: same texts and vocabulary, alternating.

`encode_batch` only encodes; Keel also reads and decompresses the file, splits sentences, finds word starts, hashes,
checks and writes. A ratio of 1.0 would mean that all of this costs nothing.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from keel.stages import corpus, tokenizer
from keel.text.readers import read


def synthetic_text(folder: Path, documents: int = 4000) -> Path:
    """Text with a natural distribution of word frequencies (Zipf), as .jsonl.gz."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(random.choice(letters, random.integers(2, 10))) for _ in range(20_000)]
    path = folder / "synthetic.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for _ in range(documents):
            picks = np.minimum(random.zipf(1.3, 400) - 1, len(words) - 1)
            sentences = [" ".join(words[i] for i in part).capitalize() + "." for part in np.split(picks, 25)]
            file.write(json.dumps({"text": " ".join(sentences)}) + "\n")
    return path


def measure(path: Path | None, vocabulary: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = path or synthetic_text(folder)
        tokenizer.train([str(source)], str(folder / "tokenizer"), vocab_size=vocabulary)
        texts = [piece.text for piece in read([source]) if not piece.rejected]
        megabytes = sum(len(t.encode()) for t in texts) / 1e6
        raw = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
        times: dict[str, list[float]] = {"keel": [], "peer": []}
        for _ in range(rounds):
            began = time.perf_counter()
            for start in range(0, len(texts), 1000):
                raw.encode_batch(texts[start : start + 1000], add_special_tokens=False)
            times["peer"].append(time.perf_counter() - began)
            began = time.perf_counter()
            corpus.build([str(source)], str(folder / "tokenizer"), str(folder / "corpus"))
            times["keel"].append(time.perf_counter() - began)
            shutil.rmtree(folder / "corpus")
    mine, other = (megabytes / float(np.median(times[side])) for side in ("keel", "peer"))
    return {"keel": mine, "peer": other, "ratio": mine / other}
