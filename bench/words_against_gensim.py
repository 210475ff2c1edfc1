"""word2vec compared with gensim: same text, settings and threads, alternating. Prints JSON lines.

    python bench/words_against_gensim.py CORPUS [--objective skip_gram|cbow] [--epochs 3] [--threads 2] [--rounds 1]
        [--similarity FILE ...] [--analogies FILE ...]

CORPUS must be tokenized into words (`keel tokenizer train --kind words`). Both sides train on the same sentences of the
corpus, without out-of-vocabulary words. The time of evaluations is not counted. Each round has its own seed: scores of
two seeds differ by up to 0.03.

gensim is run in both of its modes. With a list of sentences, its learning rate decays as Keel's does. With a file, each
thread counts only its own words as progress, so that with two threads the learning rate at the end of an epoch is that
of its middle: a different schedule, and a better one if there are few epochs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from gensim.models import Word2Vec

from keel.corpus.stream import Cursor
from keel.learner.build import fresh_learner
from keel.pretraining.data import open_data
from keel.recipe import load
from keel.stages.word_vectors import WordVectors, _judge_analogies, _judge_pairs


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus", help="corpus folder")
    options.add_argument("--objective", choices=("skip_gram", "cbow"), default="skip_gram")
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=1, help="runs per side, each with its own seed")
    options.add_argument("--similarity", nargs="*", default=[], help="files of word pairs with human ratings")
    options.add_argument("--analogies", nargs="*", default=[], help="files of analogy questions")
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    for turn in range(1, given.rounds + 1):
        recipe = load("word2vec" if given.objective == "skip_gram" else "word2vec-cbow", [f"training.seed={turn}"])
        data = open_data(recipe, given.corpus, None)
        rows, names = _rows(data), data.tokenizer.vocabulary
        special = {data.tokenizer.unk, data.tokenizer.cls, data.tokenizer.sep, data.tokenizer.pad, data.tokenizer.mask}
        sentences = [[names[id] for id in row.tolist() if id not in special] for row in rows]
        words = sum(map(len, sentences))
        for name, run in (("keel", _keel), ("gensim", _from_sentences), ("gensim, file", _from_file)):
            vectors, seconds = run(data, sentences, sum(map(len, rows)), given)
            figures = {Path(p).stem: _judge_pairs(vectors, Path(p))["spearman"] for p in given.similarity}
            figures |= {Path(p).stem: _judge_analogies(vectors, Path(p))["accuracy"] for p in given.analogies}
            speed = round(given.epochs * words / seconds)
            print(json.dumps({"round": turn, "by": name, "words_per_second": speed, **figures}), flush=True)


def _rows(data) -> list[np.ndarray]:  # type: ignore[no-untyped-def]
    """Every row of one epoch."""
    split, cursor = [], Cursor()
    while cursor.epoch == 0:
        rows, cursor = data.streams["main"].take(cursor, 50_000)
        split += np.split(rows.ids, np.cumsum(rows.lengths)[:-1])
    return split


def _keel(data, sentences, tokens, given) -> tuple[WordVectors, float]:  # type: ignore[no-untyped-def]
    model = data.recipe.model
    learner = fresh_learner(model.backbone, model.objectives, data.recipe.training.seed)
    learner.attach_corpus(data.tokenizer, lambda: data.corpus.count_tokens(data.tokenizer.size))
    first, _ = data.streams["main"].take(Cursor(), 1000)
    learner.update(first, 0.0)  # compiles the loop before the clock starts
    rate, cursor = data.recipe.training.learning_rate, Cursor()
    total, done = given.epochs * tokens, 0
    began = time.perf_counter()
    while cursor.epoch < given.epochs:
        rows, cursor = data.streams["main"].take(cursor, data.recipe.training.batch_tokens)
        learner.update(rows, rate * max(1e-4, 1 - done / total))
        done += len(rows.ids)
    seconds = time.perf_counter() - began
    table = learner.backbone.token_embeddings().detach().numpy()
    special = 5  # special tokens are the first entries
    return WordVectors(list(data.tokenizer.vocabulary)[special:], table[special:]), seconds


def _from_sentences(data, sentences, _, given) -> tuple[WordVectors, float]:  # type: ignore[no-untyped-def]
    model = _gensim(data, sentences, given)
    began = time.perf_counter()
    model.train(sentences, total_examples=len(sentences), epochs=given.epochs)
    seconds = time.perf_counter() - began
    return WordVectors(list(model.wv.index_to_key), model.wv.vectors), seconds


def _from_file(data, sentences, _, given) -> tuple[WordVectors, float]:  # type: ignore[no-untyped-def]
    model = _gensim(data, sentences, given)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(" ".join(sentence) + "\n" for sentence in sentences)
        file.flush()
        began = time.perf_counter()
        model.train(corpus_file=file.name, total_words=sum(map(len, sentences)), epochs=given.epochs)
        seconds = time.perf_counter() - began
    return WordVectors(list(model.wv.index_to_key), model.wv.vectors), seconds


def _gensim(data, sentences, given) -> Word2Vec:  # type: ignore[no-untyped-def]
    settings = data.recipe.model.objectives[given.objective]
    model = Word2Vec(
        vector_size=data.recipe.model.backbone.width,
        window=settings.window,
        negative=settings.negatives,
        sample=settings.sample,
        ns_exponent=settings.power,
        sg=int(given.objective == "skip_gram"),
        min_count=1,
        workers=given.threads,
        alpha=data.recipe.training.learning_rate,
        min_alpha=1e-4 * data.recipe.training.learning_rate,
        seed=data.recipe.training.seed,
    )
    model.build_vocab(sentences)
    return model


if __name__ == "__main__":
    main()
