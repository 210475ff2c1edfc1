"""Word vectors through the whole line: text, words, vectors, tasks; and traded with gensim both ways."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keel.errors import UserError
from keel.hugging_face.folder import load_model
from keel.inference.model import Model
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain
from keel.stages.word_vectors import WordVectors, evaluate_words, export_words, import_words

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def word_corpus(keel: Command, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    for words in (
        ["tokenizer", "train", text_file, "--kind", "words", "--min-frequency", 3, "--out", folder / "tokenizer"],
        ["corpus", "build", text_file, "--tokenizer", folder / "tokenizer", "--out", folder / "corpus"],
    ):
        said = keel(*words)
        assert said.returncode == 0, said.stderr
    return folder / "corpus"


SHORT = ["training.steps=30", "training.batch_tokens=2000", "model.backbone.width=16", "data.length=200"]


@pytest.fixture(scope="module")
def vectors(keel: Command, word_corpus: Path) -> Path:
    out = word_corpus.parent / "vectors"
    changes = [part for change in SHORT for part in ("--set", change)]
    said = keel("pretrain", "word2vec", "--corpus", word_corpus, "--out", out, "--threads", 1, *changes, "--json")
    assert said.returncode == 0, said.stderr
    loss = json.loads(said.stdout)["skip_gram.loss"]
    assert loss < 0.9 * 6 * np.log(2), "less than that of even guesses about a word and its five negatives"
    return out


def test_a_run_is_repeatable_and_can_be_cut(word_corpus: Path, vectors: Path, tmp_path: Path) -> None:
    """One thread: the same bits again; and the same whether or not it was stopped half way."""
    given: dict[str, Any] = {"corpus": str(word_corpus), "threads": 1, "quiet": True}
    pretrain("word2vec", out=str(tmp_path / "a"), overrides=SHORT, **given)
    first = load_model(vectors).learner.state_dict()
    again = load_model(tmp_path / "a").learner.state_dict()
    assert first.keys() == again.keys() and all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["backbone.tokens.weight"], torch.zeros_like(first["backbone.tokens.weight"]))
    half = [*SHORT, "training.decay=constant", "training.checkpoint_steps=10"]
    pretrain("word2vec", out=str(tmp_path / "whole"), overrides=half, **given)
    pretrain("word2vec", out=str(tmp_path / "cut"), overrides=[*half, "training.steps=10"], **given)
    pretrain("word2vec", out=str(tmp_path / "cut"), overrides=half, resume=True, **given)
    whole, cut = (load_model(tmp_path / name).learner.state_dict() for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


@pytest.mark.parametrize("recipe", ["word2vec", "word2vec-cbow"])
def test_words_of_one_kind_become_neighbours(recipe: str, word_corpus: Path, tmp_path: Path) -> None:
    changes = [*SHORT, "training.steps=150", f"model.objectives.{recipe[9:] or 'skip_gram'}.sample=0.1"]
    pretrain(recipe, corpus=str(word_corpus), out=str(tmp_path / "m"), overrides=changes, threads=1, quiet=True)
    found = WordVectors.open(str(tmp_path / "m"))
    near = [row["word"] for row in found.similar("watches", 4)]
    verbs = {"remembers", "follows", "repairs", "carries", "forgets"}
    assert len(verbs & set(near)) >= 2, near


@pytest.mark.parametrize("binary", [False, True])
def test_vectors_open_in_gensim_and_gensims_open_here(vectors: Path, tmp_path: Path, binary: bool) -> None:
    from gensim.models import KeyedVectors

    ours = WordVectors.open(str(vectors))
    result = export_words(str(vectors), str(tmp_path / "v"), binary)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "v"), binary=binary)
    assert result["words"] == len(theirs) == len(ours.words) and theirs.index_to_key == ours.words
    np.testing.assert_allclose(theirs.vectors, ours.vectors, rtol=1e-6)
    assert [w for w, _ in theirs.most_similar("keel", topn=5)] == [row["word"] for row in ours.similar("keel", 5)]
    answers = theirs.most_similar(positive=["mast", "sailor"], negative=["keel"], topn=5)
    assert [w for w, _ in answers] == [row["word"] for row in ours.analogy("keel", "mast", "sailor", 5)]
    theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    again = WordVectors.open(str(tmp_path / "theirs"))
    assert again.words == ours.words
    np.testing.assert_allclose(again.vectors, ours.vectors, rtol=1e-6)


def test_figures_equal_gensims(vectors: Path, tmp_path: Path) -> None:
    from gensim.models import KeyedVectors

    ours = WordVectors.open(str(vectors))
    source = np.random.default_rng(0)
    latin = [word for word in ours.words if word.isascii() and word.isalpha()]
    pairs = [(*source.choice(latin, 2), source.integers(0, 10)) for _ in range(40)] + [("keel", "nothere", 3)]
    (tmp_path / "pairs.txt").write_text("\n".join(f"{a}\t{b}\t{score}" for a, b, score in pairs))
    questions = [" ".join(source.choice(latin, 4, replace=False)) for _ in range(60)] + ["keel mast nothere sailor"]
    questions += ["Keel MAST keel mast"]
    (tmp_path / "questions.txt").write_text(": some\n" + "\n".join(questions))
    export_words(str(vectors), str(tmp_path / "v"), True)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "v"), binary=True)
    found = evaluate_words(str(vectors), [str(tmp_path / "pairs.txt")], [str(tmp_path / "questions.txt")])
    _, rank, missing = theirs.evaluate_word_pairs(str(tmp_path / "pairs.txt"), case_insensitive=True)
    assert found["pairs"]["spearman"] == pytest.approx(rank.statistic) and found["pairs"]["left_out"] == 1
    assert missing == pytest.approx(100 / 41)
    accuracy, sections = theirs.evaluate_word_analogies(str(tmp_path / "questions.txt"))
    asked = len(sections[-1]["correct"]) + len(sections[-1]["incorrect"])
    assert found["questions"]["accuracy"] == pytest.approx(accuracy) and found["questions"]["questions"] == asked == 61


def test_published_layouts_of_lists_are_read(vectors: Path, tmp_path: Path) -> None:
    """SimLex-999 has a heading and the part of speech before the score; lists of one name are both told."""
    rows = [("keel", "mast", "N", 1.5, 4.2), ("old", "young", "A", 8.25, 3.9), ("sailor", "captain", "N", 6, 4.8)]
    (tmp_path / "plain").mkdir()
    plain, published = tmp_path / "plain" / "list.txt", tmp_path / "list.txt"
    plain.write_text("".join(f"{a} {b} {score}\n" for a, b, _, score, _ in rows))
    heading = "word1\tword2\tPOS\tSimLex999\tconc(w1)\n"
    published.write_text(heading + "".join("\t".join(map(str, row)) + "\n" for row in rows))
    spoken = tmp_path / "spoken.csv"  # as WS-353 has it
    spoken.write_text("Word 1,Word 2,Human (mean)\n" + "".join(f"{a},{b},{score}\n" for a, b, _, score, _ in rows))
    found = evaluate_words(str(vectors), [str(plain), str(published), str(spoken)])
    assert found["list"] == found[str(published)] == found["spoken"]
    assert found["list"]["pairs"] == 3 and found["list"]["left_out"] == 0


AGES, VERBS = ("the old", "a young"), ("watches", "remembers", "follows")
MEN, THINGS = ("captain", "sailor", "carpenter"), ("keel", "mast", "harbour")


def split_rows(rows: list[str]) -> tuple[list[str], list[str]]:
    """Two halves without a row in common, in a random order."""
    rows = random.Random(1).sample(rows, len(rows))
    return rows[::2], rows[1::2]


@pytest.fixture(scope="module")
def learnt(word_corpus: Path) -> Path:
    """Vectors trained ten times as long, so that men and things differ."""
    out, changes = word_corpus.parent / "learnt", ["training.steps=300", "model.objectives.skip_gram.sample=0.1"]
    pretrain("word2vec", corpus=str(word_corpus), out=str(out), overrides=[*SHORT, *changes], threads=1, quiet=True)
    return out


ROWS = [
    f"{age} {noun} {verb} {end}\t{'man' if noun in MEN else 'thing'}"
    for noun in (*MEN, *THINGS)
    for age in AGES
    for verb in VERBS
    for end in ("at dawn", "in winter")
]


@pytest.mark.parametrize("unseen", ["sentences", "words"])
@pytest.mark.parametrize("frozen", ["false", "true"])
def test_texts_are_classified_with_static_vectors(learnt: Path, tmp_path: Path, frozen: str, unseen: str) -> None:
    """By a rule (a man, or a thing) that holds for sentences that were not learnt, and, because vectors of one kind are
    close, for nouns that no training text has. The accuracy is counted again."""
    train, dev = split_rows(ROWS)
    if unseen == "words":
        dev = [row for row in ROWS if "carpenter" in row or "harbour" in row]
        train = [row for row in ROWS if row not in dev]
    for name, part in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *part]) + "\n")
    files = {name: str(tmp_path / f"{name}.tsv") for name in ("train", "dev")}
    changes = [f"encoder.frozen={frozen}", "training.epochs=40", "training.learning_rate=0.2"]
    out = str(tmp_path / "m")
    result = finetune(str(learnt), "classify", **files, out=out, overrides=changes, quiet=True)
    texts, labels = zip(*(row.split("\t") for row in dev), strict=True)
    given = [answer["label"] for answer in Model.load(out).predict(list(texts))]
    right = np.mean([a == b for a, b in zip(given, labels, strict=True)])
    least = 0.7 if (frozen, unseen) == ("false", "words") else 0.9  # the former was 0.875 when written
    assert result["accuracy"] == pytest.approx(right) and right > least
    before, after = WordVectors.open(str(learnt)), load_model(out).learner.state_dict()["backbone.tokens.weight"]
    place = load_model(learnt).tokenizer.vocabulary.index("keel")
    moved = not np.array_equal(after[place].numpy(), before.vectors[before.id("keel")])
    assert moved == (frozen == "false"), "vectors are trained unless they are frozen"


def test_words_are_tagged_with_static_vectors(vectors: Path, tmp_path: Path) -> None:
    rows = [f"{age} {man} {verb} the {thing}" for age in AGES for man in MEN for verb in VERBS for thing in THINGS]
    for name, part in zip(("train", "dev"), split_rows(rows), strict=True):
        kinds = dict.fromkeys(MEN, "B-MAN") | dict.fromkeys(THINGS, "B-THING")
        tagged = ["\n".join(f"{word} {kinds.get(word, 'O')}" for word in row.split()) for row in part]
        (tmp_path / f"{name}.conll").write_text("\n\n".join(tagged) + "\n")
    files = {name: str(tmp_path / f"{name}.conll") for name in ("train", "dev")}
    changes = ["training.epochs=8", "training.learning_rate=0.05"]
    result = finetune(str(vectors), "tag", **files, out=str(tmp_path / "t"), overrides=changes, quiet=True)
    assert result["f1"] == 1.0
    found = Model.load(tmp_path / "t").predict(["a young mast forgets the sailor"])[0]["entities"]
    assert [(e["text"], e["label"]) for e in found] == [("mast", "THING"), ("sailor", "MAN")], "wherever they stand"


def test_imported_vectors_are_a_model(vectors: Path, tmp_path: Path) -> None:
    export_words(str(vectors), str(tmp_path / "v.txt"))
    result = import_words(str(tmp_path / "v.txt"), str(tmp_path / "m"))
    before, after = WordVectors.open(str(vectors)), WordVectors.open(str(tmp_path / "m"))
    assert result["lowercase"] and after.words == before.words and np.array_equal(after.vectors, before.vectors)
    encoded = Model.load(tmp_path / "m").encode(["The old keel"])[0]
    np.testing.assert_array_equal(encoded[1:4], before.vectors[[before.id(word) for word in ("the", "old", "keel")]])


def test_words_that_no_text_can_have_are_counted(tmp_path: Path) -> None:
    """A tokenizer of words cuts at signs: the vector of new_york would never be met."""
    (tmp_path / "v.txt").write_text("4 2\nkeel 1 2\nnew_york 3 4\ndon't 5 6\nBerlin 7 8\n")
    kept = import_words(str(tmp_path / "v.txt"), str(tmp_path / "cased"))
    assert not kept["lowercase"] and (kept["cut_in_texts"], kept["such_as"]) == (2, "new_york don't")
    small = import_words(str(tmp_path / "v.txt"), str(tmp_path / "uncased"), lowercase=True)
    assert (small["cut_in_texts"], small["such_as"]) == (3, "new_york don't Berlin")
    vectors = Model.load(tmp_path / "cased").encode(["keel Berlin new_york"])[0]
    assert vectors[1].tolist() == [1, 2] and vectors[2].tolist() == [7, 8] and not vectors[3:].any()


def test_mistakes_are_one_line(vectors: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from keel.cli.main import run

    (tmp_path / "bad.txt").write_text("2 3\nkeel 1 2 3\nmast 1 x 3\n")
    (tmp_path / "none.txt").write_text("keel 1 2 3\n")
    (tmp_path / "pairs.txt").write_text("keel mast\n")
    (tmp_path / "latin.txt").write_bytes("keel mast 3\ncaf\u00e9 mast 4\n".encode("latin-1"))
    (tmp_path / "utf16.txt").write_text("keel mast 3\n", encoding="utf-16")
    (tmp_path / "equal.txt").write_text("keel mast 3\nold mast 3\n")
    for words, expected in [
        (("similar", vectors, "spinaker"), "'spinaker' has no vector"),
        (("similar", vectors, " "), "an empty word has no vector"),
        (("similar", tmp_path / "bad.txt", "keel"), "bad.txt, line 3: expected a word and 3 numbers"),
        (("import", tmp_path / "none.txt", "--out", tmp_path / "o"), "does not begin with the number of words"),
        (("evaluate", vectors), "nothing to evaluate on"),
        (("evaluate", vectors, "--similarity", tmp_path / "pairs.txt"), "pairs.txt, line 1: expected two words"),
        (("evaluate", vectors, "--similarity", tmp_path / "latin.txt"), "latin.txt, line 2: invalid UTF-8: byte 0xe9"),
        (("evaluate", vectors, "--analogies", tmp_path / "utf16.txt"), "utf16.txt: UTF-16 file: convert it"),
        (("evaluate", vectors, "--similarity", tmp_path / "equal.txt"), "equal.txt: all of its pairs have the same"),
        (("export", vectors, "--out", tmp_path / "pairs.txt"), "already there"),
        (("import", tmp_path / "missing", "--out", tmp_path / "o"), "no such file"),
    ]:
        code = run(["words", *map(str, words)])
        said = capfd.readouterr().err
        assert code == 2 and expected in said and len(said.splitlines()) == 1, said


def test_without_the_compiler_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from keel.objectives import skip_gram

    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(UserError, match=r"pip install 'keel-nlp\[fast\]'"):
        skip_gram.compiled()
