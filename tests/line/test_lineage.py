"""The whole lineage through the real stages: ELMo learns and serves tasks, members are compared, layers are probed."""

from __future__ import annotations

import json
import random
import re
import statistics
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keel.comparing.lineage import compare_lineage
from keel.comparing.tasks import LabelledTask
from keel.errors import Stopped, UserError, separate
from keel.hugging_face.folder import load_model
from keel.inference.model import Model
from keel.pretraining.held_out import evaluate_on_corpus
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain, save_untrained
from keel.stages.probe import probe
from keel.stages.word_vectors import WordVectors
from keel.text.senses import read_senses
from keel.tokenizers.folder import open_tokenizer

SMALL_ELMO = [
    *("model.backbone.cells=24", "model.backbone.width=12", "model.backbone.max_characters=12"),
    *(
        "model.backbone.filters=[[1, 8], [2, 8], [3, 16]]",
        "training.batch_tokens=512",
        "training.evaluation_tokens=512",
    ),
    *("training.precision=fp32", "data.length=32"),
]
BILSTM = [
    *("encoder.frozen=true", "encoder.layers=mix", "encoder.bilstm={cells: 12, dropout: 0.0}"),
    "training.batch_size=4",
]


@pytest.fixture(scope="module")
def elmo(word_corpus: Path) -> Path:
    out = word_corpus.parent / "elmo"
    changes = [*SMALL_ELMO, "training.steps=120", "training.learning_rate=1e-2"]
    changes += ["model.objectives.bidirectional_lm.sample=30"]
    result = pretrain("elmo-mini", corpus=str(word_corpus), out=str(out), overrides=changes, quiet=True)
    size = load_model(out).tokenizer.size
    for way in ("bidirectional_lm", "bidirectional_lm.backward"):
        assert result[f"{way}.loss"] < 0.75 * np.log(size), "far below even guesses"
    return out


KINDS = {"captain": "MAN", "sailor": "MAN", "carpenter": "MAN", "keel": "THING", "mast": "THING", "plank": "THING"}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.conll and dev.conll: 30 sentences each, none in both; a word of KINDS has its label wherever it stands."""
    folder = tmp_path_factory.mktemp("names")
    source, sentences = random.Random(2), set()
    while len(sentences) < 60:
        first, second = source.sample(sorted(KINDS), 2)
        verb, article = source.choice(("watches", "remembers", "follows")), source.choice(("the", "a", "an old"))
        sentences.add(f"the {first} {verb} {article} {second}")
    for file, part in (("train", sorted(sentences)[::2]), ("dev", sorted(sentences)[1::2])):
        tagged = ["\n".join(f"{w} B-{KINDS[w]}" if w in KINDS else f"{w} O" for w in s.split()) for s in part]
        (folder / f"{file}.conll").write_text("\n\n".join(tagged) + "\n")
    return folder


def measured(answers: Path, dev: Path) -> dict[str, float]:
    """F1 of all entities and of each label, counted from the answers of a run and the sentences of a file."""
    sentences = [[line.split()[0] for line in part.splitlines()] for part in dev.read_text().strip().split("\n\n")]
    gold = {(n, word, KINDS[word]) for n, words in enumerate(sentences) for word in words if word in KINDS}
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    assert len(lines) == len(sentences)
    found = {(n, e["text"], e["label"]) for n, line in enumerate(lines) for e in line["entities"]}
    given = [(n, e["text"], e["label"]) for n, line in enumerate(lines) for e in line["entities"]]
    scores = {}
    for label in ("", "MAN", "THING"):
        right, asked, said = (sum(label in ("", kind) for _, _, kind in part) for part in (found & gold, gold, given))
        scores[label or "f1"] = 2 * right / (asked + said)
    return scores


def cells(page: str, title: str) -> list[list[str]]:
    """The rows of the table below this heading of a page, as text."""
    table = page[page.index(f"<h2>{title}</h2>") :].split("</table>")[0].split("<tbody>")[1]
    return [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in table.split("</tr>")[:-1]]


def test_elmo_resumes_where_it_was_stopped(word_corpus: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"corpus": str(word_corpus), "threads": 1, "quiet": True}
    changes = [*SMALL_ELMO, "training.decay=constant", "training.checkpoint_steps=5", "training.warmup=0"]
    pretrain("elmo-mini", out=str(tmp_path / "whole"), overrides=[*changes, "training.steps=8"], **given)
    pretrain("elmo-mini", out=str(tmp_path / "cut"), overrides=[*changes, "training.steps=5"], **given)
    pretrain("elmo-mini", out=str(tmp_path / "cut"), overrides=[*changes, "training.steps=8"], resume=True, **given)
    whole, cut = (load_model(tmp_path / name).learner.state_dict() for name in ("whole", "cut"))
    assert whole.keys() == cut.keys() and all(torch.equal(whole[name], cut[name]) for name in whole)


@pytest.mark.parametrize("output", ["table", "characters"])
def test_elmo_learns_on_a_tasks_own_text(elmo: Path, word_corpus: Path, tmp_path: Path, output: str) -> None:
    """Continued without labels on other sentences of the same words: their held-out loss falls. Another softmax starts
    afresh, and is soon better than even guesses."""
    from keel.stages.corpus import build

    source, path = random.Random(4), tmp_path / "task.jsonl"
    words = ("captain", "sailor", "carpenter", "keel", "mast", "harbour", "at", "dawn")
    lines = [" ".join(source.choice(words) for _ in range(12)) + "." for _ in range(200)]
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    build([str(path)], str(word_corpus.parent / "words"), str(tmp_path / "c"), workers=1, held_out=0.2)
    before = evaluate_on_corpus(str(elmo), str(tmp_path / "c"))
    changes = [*SMALL_ELMO, "training.steps=30", f"model.objectives.bidirectional_lm.output={output}"]
    result = pretrain(
        "elmo-mini", corpus=str(tmp_path / "c"), out=str(tmp_path / "m"), init=str(elmo), overrides=changes, quiet=True
    )
    even = np.log(load_model(elmo).tokenizer.size)
    bar = before["bidirectional_lm.loss"] - 0.2 if output == "table" else even
    assert result["bidirectional_lm.loss"] < bar


@pytest.mark.parametrize("recipe", ["elmo-mini", "word2vec", "fasttext"])
def test_continuing_from_a_model_with_other_words_is_refused(
    recipe: str, word_corpus: Path, corpus_path: Path, text_file: Path, tmp_path: Path
) -> None:
    from keel.stages.corpus import build
    from keel.stages.tokenizer import train

    train([str(text_file)], str(tmp_path / "fewer"), kind="words", min_frequency=60)
    build([str(text_file)], str(tmp_path / "fewer"), str(tmp_path / "corpus"), workers=1, held_out=0.1)
    save_untrained(recipe, str(tmp_path / "corpus"), str(tmp_path / "m"))
    with pytest.raises(UserError, match="has another tokenizer than the corpus; build the corpus with"):
        pretrain(recipe, corpus=str(word_corpus), out=str(tmp_path / "o"), init=str(tmp_path / "m"), quiet=True)


@pytest.mark.parametrize("at", ["input", "output", "both"])
def test_a_bilstm_tags_with_elmos_layers(elmo: Path, names: Path, tmp_path: Path, at: str) -> None:
    """Judged on sentences that were not learnt."""
    train, dev = (str(names / f"{file}.conll") for file in ("train", "dev"))
    changes = [*BILSTM, f"encoder.bilstm.at={at}", "training.epochs=60", "training.learning_rate=1e-2"]
    out = str(tmp_path / "t")
    result = finetune(str(elmo), "tag", train=train, dev=dev, out=out, overrides=changes, quiet=True)
    assert result["f1"] > 0.95
    mixes = result["mixes"]
    assert set(mixes) == {"input": {"read"}, "output": {"beside"}, "both": {"read", "beside"}}[at]
    assert all(sum(shares[:-1]) == pytest.approx(1.0) and len(shares) == 4 for shares in mixes.values())
    found = Model.load(out).predict(["the keel watches a zebra"])[0]["entities"]
    assert found[0]["text"] == "keel" and found[0]["label"] == "THING"


def test_a_penalty_makes_shares_equal(elmo: Path, names: Path, tmp_path: Path) -> None:
    spread = {}
    for penalty in (0.0, 10.0):
        changes = [*BILSTM, f"encoder.mix_penalty={penalty}", "training.epochs=40", "training.learning_rate=1e-2"]
        out = str(tmp_path / str(penalty))
        files = {"train": str(names / "train.conll"), "dev": str(names / "dev.conll")}
        result = finetune(str(elmo), "tag", **files, out=out, overrides=changes, quiet=True)
        assert result["f1"] > 0.8, "both learn the task"
        spread[penalty] = float(np.std(result["mixes"]["read"][:-1]))
    assert spread[10.0] < 0.3 * spread[0.0]


def test_unseen_words_are_told_apart(elmo: Path) -> None:
    one, other, same = Model.load(elmo).encode(["the zebra", "the quagga", "the zebra"])
    assert np.array_equal(one, same) and np.abs(one[2] - other[2]).max() > 1e-3


def test_elmo_has_no_vectors_of_its_own(elmo: Path) -> None:
    with pytest.raises(UserError, match="composes words from characters"):
        WordVectors.open(str(elmo))


def options(names: Path, out: Path, **more: Any) -> dict[str, Any]:
    settings = ["training.epochs=10", "training.learning_rate=2e-2", "training.batch_size=8"]
    task = LabelledTask.parse(f"names=tag:{names}/train.conll:{names}/dev.conll", settings)
    given = {"tasks": [task], "task_seeds": 2, "sizes": [4], "quiet": True}
    return {"out": str(out), **given, "features_overrides": ["encoder.bilstm={cells: 8, dropout: 0.0}"], **more}


TABLES = ("Members, best first", "names: F1 by label")


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_the_lineages_table_is_that_of_its_runs(elmo: Path, finished_run: Path, names: Path, tmp_path: Path) -> None:
    members = [f"elmo={elmo}", f"bert={finished_run}"]
    out = tmp_path / "o"
    more = {"tuned_overrides": ["elmo:training.epochs=1"], "seeds_of": {"elmo": 1}}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped, match="--resume"):
        patch.setattr(subprocess, "run", interrupted)  # Ctrl-C while answers are timed
        compare_lineage(members, **options(names, out, **more))
    result = compare_lineage(members, **options(names, out, **more), resume=True)
    steps = {
        (run["member"], way): run["tasks"]["names"][way]["all"][0]["steps"]
        for run in result["runs"]
        for way in ("features", "tuned")
    }
    assert steps == {("elmo", "features"): 40, ("bert", "features"): 40, ("elmo", "tuned"): 4, ("bert", "tuned"): 40}, (
        "what is said of a task holds in both ways, and what is said of a member holds for it alone"
    )
    assert {(row["member"], row["way"]) for row in result["rows"]} == {
        (member, way) for member in ("elmo", "bert") for way in ("features", "tuned")
    }
    page = (out / "report.html").read_text()
    shown, by_label = ({tuple(row[:2]): row[2:] for row in cells(page, title)} for title in TABLES)
    for row in result["rows"]:
        place, key = out / row["member"], (row["member"], row["way"])
        folders = [place / f"names-{row['way']}-{seed}" for seed in ((1,) if row["member"] == "elmo" else (1, 2))]
        assert row["tasks"]["names"]["count"] == len(folders) == len(list(place.glob(f"names-{row['way']}-?")))
        found = [measured(folder / "answers.jsonl", names / "dev.conll") for folder in folders]
        for folder, scores in zip(folders, found, strict=True):
            stored = json.loads((folder / "result.json").read_text())
            assert stored["f1"] == pytest.approx(scores["f1"]) and stored["by_label"] == pytest.approx(
                {label: scores[label] for label in stored["by_label"]}
            )
        mean = statistics.fmean(scores["f1"] for scores in found)
        assert row["tasks"]["names"]["mean"] == row["mean_score"] == pytest.approx(mean)
        deviation = f"\u00a0±\u00a0{statistics.stdev(s['f1'] for s in found):.4f}" if len(found) > 1 else ""
        assert shown[key] == [f"{mean:.4f}{deviation}", f"{mean:.3f}", str(len(found))]
        labels = [statistics.fmean(scores[label] for scores in found) for label in ("MAN", "THING")]
        assert by_label[key] == [f"{label:.3f}" for label in labels]
    means = {(row["member"], row["way"]): row["mean_score"] for row in result["rows"]}
    assert list(means.values()) == sorted(means.values(), reverse=True) and list(shown) == list(means), "best first"
    assert means["bert", "tuned"] > 0.9, "learnt, and true of sentences that were not"
    assert means["bert", "tuned"] > means["elmo", "tuned"], "in 40 steps and in 4"
    for run in result["runs"]:
        for way in ("features", "tuned"):
            found = run["tasks"]["names"][way]
            assert found["4"][0]["examples"] == 4 and found["all"][0]["examples"] == 30
            assert found["cost"]["per_second"] > 0 and found["cost"]["megabytes"] > 50
    assert page.count("<svg") >= 4 and "predictions/s" in page and "task seconds" in page
    times = {path: path.stat().st_mtime_ns for path in out.glob("*/*/result.json")}
    again = compare_lineage(members, **options(names, out, **more), resume=True)
    assert again["rows"] == result["rows"] and times == {path: path.stat().st_mtime_ns for path in times}
    grown = compare_lineage(members, **options(names, out, **(more | {"seeds_of": {}, "sizes": [4, 8]})), resume=True)
    assert times == {path: path.stat().st_mtime_ns for path in times}
    assert {row["seeds"] for row in grown["rows"]} == {2}
    assert all(run["tasks"]["names"]["tuned"]["8"][0]["examples"] == 8 for run in grown["runs"])
    with pytest.raises(UserError, match="other members, data or settings"):
        compare_lineage(members, **options(names, out, **(more | {"tuned_overrides": []})), resume=True)


@pytest.mark.clock
def test_members_can_be_trained_on_the_corpus_that_fits(
    corpus_path: Path, word_corpus: Path, names: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "small-elmo.yaml"
    recipe.write_text(
        "extends: elmo-mini\nmodel:\n  backbone: {cells: 16, width: 8, max_characters: 8, filters: [[1, 4]]}\n"
        "training: {batch_tokens: 256, evaluation_tokens: 256, precision: fp32}\n"
    )
    given = options(names, tmp_path / "o", task_seeds=1, sizes=[], ways=["features"])
    result = compare_lineage(
        [str(recipe), "bert-tiny"], corpus=str(corpus_path), words_corpus=str(word_corpus), budget="3s", **given
    )
    fingerprints = [load_model(run["model"]).tokenizer.fingerprint() for run in result["runs"]]
    tokenizers = (word_corpus.parent / "words", corpus_path.parent / "tokenizer")
    assert fingerprints == [open_tokenizer(path).fingerprint() for path in tokenizers], "ELMo reads the corpus of words"
    assert all(0 < run["seconds"] < 4 for run in result["runs"])
    assert [run["tokens"] > 0 for run in result["runs"]] == [True, True]


def test_mistakes_are_said_before_anything_is_trained(elmo: Path, names: Path, tmp_path: Path) -> None:
    given = options(names, tmp_path / "o")
    (tmp_path / "broken.conll").write_text("word\nword\n")
    broken = LabelledTask.parse(f"t=tag:{tmp_path}/broken.conll:{names}/dev.conll")
    for members, change, message in (
        ([f"a={elmo}"], {}, "two members"),
        ([f"a={elmo}", f"a={elmo}"], {}, "two members"),
        ([f"a={elmo}", "b="], {}, "expected NAME=FOLDER"),
        ([f"a={elmo}", "b=/nothing"], {}, "/nothing"),
        ([f"a={elmo}", "bert-tiny"], {}, "give --budget"),
        ([f"a={elmo}", "bert-tiny"], {"budget": "1m"}, "give --corpus"),
        ([f"a={elmo}", "bert-tiny"], {"budget": "soon"}, "'soon' is not a time"),
        ([f"a={elmo}", f"b={elmo}"], {"tasks": [broken]}, r"--task t: .*broken\.conll: every line has a single"),
        ([f"a={elmo}", f"b={elmo}"], {"tasks": []}, "no task to compare on"),
        ([f"a={elmo}", f"b={elmo}"], {"ways": ["glued"]}, "there is no 'glued'"),
        ([f"a={elmo}", f"b={elmo}"], {"ways": ["tuned", "tuned"]}, "or both, each once"),
        ([f"a={elmo}", f"../b={elmo}"], {}, "expected NAME=FOLDER"),
        ([f"a={elmo}", f"b={elmo}"], {"tuned_overrides": ["c:training.epochs=1"]}, "no member of that name"),
        ([f"a={elmo}", f"b={elmo}"], {"features_overrides": ["training.epoch=1"]}, "epoch"),
        ([f"a={elmo}", f"b={elmo}"], {"seeds_of": {"c": 1}}, "no member of that name"),
        ([f"a={elmo}", f"b={elmo}"], {"seeds_of": {"a": 0}}, "must be at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            compare_lineage(members, **(given | change))
        assert not (tmp_path / "o").exists()


@pytest.fixture(scope="module")
def untrained(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("untrained") / "bert"
    save_untrained("bert-tiny", str(corpus_path), str(out))
    return out


AGES = ("old", "young")
ENDINGS = ("watches", "remembers", "follows", "repairs", "carries", "forgets")


def contexts() -> dict[str, list[tuple[str, str]]]:
    """Sentences in which the word before `keel` decides; those of dev end as no sentence of train does."""
    things = ("the harbour", "a broken mast", "seven lanterns", "an oak plank")
    found = {"train": ENDINGS[:4], "dev": ENDINGS[4:]}
    return {
        file: [(f"the {age} keel {verb} {thing}", age) for verb in verbs for thing in things for age in AGES]
        for file, verbs in found.items()
    }


def test_only_layers_that_see_context_know_of_it(untrained: Path, tmp_path: Path) -> None:
    """A label that the word itself does not tell, but the one before it does: even fresh attention shows it, also in
    sentences that end in words that were not seen."""
    for file, rows in contexts().items():
        tagged = ["\n".join(f"{w} B-{age.upper()}" if w == "keel" else f"{w} O" for w in t.split()) for t, age in rows]
        (tmp_path / f"{file}.conll").write_text("\n\n".join(tagged) + "\n")
    found = probe(str(untrained), train=str(tmp_path / "train.conll"), dev=str(tmp_path / "dev.conll"))
    assert found["figure"] == "f1" and len(found["layers"]) == 3
    assert found["baseline"]["f1"] == pytest.approx(0.5)
    assert found["layers"][0]["f1"] == pytest.approx(0.5), "below all context, the two are the same"
    assert found["layers"][1]["f1"] > 0.9


def test_senses_are_nearest_means(untrained: Path, tmp_path: Path) -> None:
    """The accuracy of the last layer is computed here once more, from the vectors that `Model.encode` gives."""
    data = contexts()
    for file, rows in data.items():
        lines = [{"text": t, "start": t.index("keel"), "end": t.index("keel") + 4, "sense": s} for t, s in rows]
        lines += [{"text": "the mast", "start": 4, "end": 8, "sense": "only"}]
        (tmp_path / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = {"train": str(tmp_path / "train.jsonl"), "dev": str(tmp_path / "dev.jsonl")}
    found = probe(str(untrained), **given, senses=True, out=str(tmp_path / "page"))
    assert found["baseline"]["accuracy"] == 0.5 and found["layers"][0]["accuracy"] == 0.5
    model = Model.load(untrained)
    before = len(model.tokenizer.encode(["the old"])[0])
    assert before == len(model.tokenizer.encode(["the young"])[0]) and len(model.tokenizer.encode(["keel"])[0]) == 1
    unit = {
        file: [(v := vectors[1 + before]) / np.linalg.norm(v) for vectors in model.encode([text for text, _ in rows])]
        for file, rows in data.items()
    }
    means = {s: sum(v for v, (_, own) in zip(unit["train"], data["train"], strict=True) if own == s) for s in AGES}
    guesses = [max(AGES, key=lambda s: float(means[s] @ v) / np.linalg.norm(means[s])) for v in unit["dev"]]
    accuracy = np.mean([guess == sense for guess, (_, sense) in zip(guesses, data["dev"], strict=True)])
    assert found["layers"][-1]["accuracy"] == pytest.approx(accuracy) and accuracy > 0.9
    page = (tmp_path / "page" / "report.html").read_text()
    assert "<svg" in page
    assert [row[1] for row in cells(page, "Layers")] == [f"{layer['accuracy']:.3f}" for layer in found["layers"]]


def test_probing_mistakes_are_one_line(
    untrained: Path, names: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from keel.cli.main import run

    (tmp_path / "odd.jsonl").write_text(
        '{"text": "a b", "start": 1, "end": 2, "sense": "a"}\n'
        '{"text": "a b", "start": false, "end": true, "sense": "a"}\n'
        '{"text": "a b", "start": 2.9, "end": 3, "sense": "a"}\n'
    )
    found, rejected = separate(read_senses(str(tmp_path / "odd.jsonl")))
    assert not found and ["white space" in bad.reason for bad in rejected] == [True, False, False]
    (tmp_path / "ragged.conll").write_text("the O\nkeel\n\n")
    (tmp_path / "one.jsonl").write_text('{"text": "the keel", "start": 4, "end": 8, "sense": "a"}\n')
    (tmp_path / "empty.conll").write_text("")
    (tmp_path / "alike.conll").write_text("the O\nkeel O\n")
    for words, expected in (
        (("--train", names / "train.conll", "--dev", tmp_path / "none.conll"), "none.conll: no such file"),
        (("--train", tmp_path / "empty.conll", "--dev", names / "dev.conll"), "empty.conll"),
        (("--train", tmp_path / "alike.conll", "--dev", names / "dev.conll"), "alike.conll"),
        (("--train", tmp_path / "ragged.conll", "--dev", names / "dev.conll"), "ragged.conll, line 2"),
        (("--train", tmp_path / "one.jsonl", "--dev", tmp_path / "one.jsonl", "--senses"), "two senses"),
    ):
        code = run(["probe", str(untrained), *map(str, words), "--quiet"])
        said = capfd.readouterr().err
        assert code == 2 and expected in said and len(said.splitlines()) == 1, said
