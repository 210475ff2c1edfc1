"""Keel: from your own text to language encoders that work.

    tokenizer = keel.train_tokenizer("texts/", "my-tokenizer")
    corpus = keel.build_corpus("texts/", tokenizer, "my-corpus")
    model = keel.pretrain("modern-mini", corpus, "my-model", budget="15m")
    classifier = keel.finetune(model, "classify", train=rows, dev=more_rows, out="my-classifier")
    classifier.model.predict(["What a lovely film."])

`keel.load(path)` opens a model folder, of Keel or of Hugging Face; `keel.add_plugin(file)` registers members of your
own. Importing this package has no side effects: torch is imported by the first call that needs it.
"""

from __future__ import annotations

from keel.api.functions import (
    add_plugin,
    build_corpus,
    compare,
    evaluate,
    fetch,
    finetune,
    load,
    pretrain,
    train_tokenizer,
)

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "add_plugin",
    "build_corpus",
    "compare",
    "evaluate",
    "fetch",
    "finetune",
    "load",
    "pretrain",
    "train_tokenizer",
]
