"""One flipped byte anywhere in a checkpoint, a model or a corpus is refused by name; the last good state is offered."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keel.corpus.store import Corpus
from keel.errors import UserError
from keel.files.folders import FOR_PEOPLE, MANIFEST, verify_folder
from keel.hugging_face.folder import load_model
from keel.training.run_folder import RunFolder

Keel = Callable[..., subprocess.CompletedProcess[str]]


def flip(path: Path, place: float = 0.5) -> None:
    """One bit of one byte, at a share of the file's length."""
    data = bytearray(path.read_bytes())
    data[min(len(data) - 1, int(place * len(data)))] ^= 0x10
    path.unlink()  # the finished model shares its files with the last checkpoint
    path.write_bytes(data)


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def newest(run: Path) -> tuple[Path, Path]:
    *_, good, last = sorted((run / "checkpoints").glob("step-*"))
    return good, last


def test_a_damaged_checkpoint_is_refused_and_the_advice_works(
    run: Path,
    keel: Keel,
    pretrain: list[str],
    one_line: Callable[[Any], str],
    finished_run: Path,
    resume_here: Callable[[list[str], Path], None],
    fingerprints: Callable[[Path], tuple[str, str]],
) -> None:
    good, last = newest(run)
    flip(last / "state.safetensors")
    line = one_line(keel(*pretrain, "--out", run, "--resume"))
    assert str(last / "state.safetensors") in line and str(good) in line
    assert "remove the damaged folder" in line
    shutil.rmtree(last)
    resume_here(pretrain, run)
    assert fingerprints(run) == fingerprints(finished_run)


def test_every_file_of_a_checkpoint_is_watched(run: Path, tmp_path: Path) -> None:
    """First, last and middle byte of each file; a missing and a shortened file."""
    good, last = newest(run)
    files = [path for path in last.iterdir() if path.name not in (MANIFEST, *FOR_PEOPLE)]
    assert {"model.safetensors", "state.safetensors", "run.json", "recipe.yaml"} <= {path.name for path in files}
    whole = Path(shutil.copytree(last, tmp_path / "whole"))

    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-1])

    damages = [lambda p: flip(p, 0.0), lambda p: flip(p, 0.5), lambda p: flip(p, 1.0), cut, Path.unlink]
    for name in sorted(path.name for path in files):
        for damage in damages:
            damage(last / name)
            with pytest.raises(UserError) as caught:
                RunFolder(run).latest()
            assert str(last / name) in str(caught.value) and str(good) in str(caught.value)
            shutil.copyfile(whole / name, last / name)
    assert RunFolder(run).latest()[0] == last


def test_a_damaged_list_of_sums_is_refused(run: Path) -> None:
    good, last = newest(run)
    for place in (0.0, 0.3, 0.5, 0.9):
        before = (last / MANIFEST).read_bytes()
        flip(last / MANIFEST, place)
        with pytest.raises(UserError) as caught:
            RunFolder(run).latest()
        assert str(last) in str(caught.value) and str(good) in str(caught.value)
        (last / MANIFEST).write_bytes(before)


def test_without_any_good_checkpoint_it_says_so(run: Path) -> None:
    for step in newest(run):
        flip(step / "model.safetensors")
    with pytest.raises(UserError, match="no earlier good checkpoint"):
        RunFolder(run).latest()


def test_a_damaged_model_is_not_asked(run: Path, keel: Keel, one_line: Callable[[Any], str]) -> None:
    flip(run / "model.safetensors")
    assert str(run / "model.safetensors") in one_line(keel("fill", run, "the [MASK]"))


def test_damage_in_the_model_folder_leaves_the_checkpoint_readable(run: Path) -> None:
    """Copies, links or not: what is offered as good has been verified."""
    flip(run / "model.safetensors")
    with pytest.raises(UserError):
        load_model(run)
    load_model(newest(run)[1])


def test_a_damaged_shard_stops_a_run(
    corpus_path: Path, tmp_path: Path, keel: Keel, pretrain: list[str], one_line: Callable[[Any], str]
) -> None:
    corpus = Path(shutil.copytree(corpus_path, tmp_path / "corpus"))
    flip(corpus / "shards" / "00000.ids")
    line = one_line(keel(*pretrain, "--corpus", corpus, "--out", tmp_path / "model"))
    assert str(corpus / "shards" / "00000.ids") in line
    assert not (tmp_path / "model").exists(), "nothing was begun"


def test_every_file_of_a_corpus_is_watched(corpus_path: Path, tmp_path: Path) -> None:
    corpus = Path(shutil.copytree(corpus_path, tmp_path / "corpus"))
    names = [path.relative_to(corpus) for path in corpus.rglob("*") if path.is_file() and path.name != MANIFEST]
    assert len(names) >= 8
    for name in names:
        if not (corpus / name).stat().st_size:
            continue
        flip(corpus / name)
        with pytest.raises(UserError) as caught:
            Corpus.open(corpus)
        assert str(corpus / name) in str(caught.value)
        shutil.copyfile(corpus_path / name, corpus / name)
    Corpus.open(corpus)
    verify_folder(corpus)


def test_a_log_with_a_torn_or_damaged_line_does_not_stop_a_resumed_run(run: Path) -> None:
    """The log is for people; the run does not depend on it."""
    log = run / "metrics.jsonl"
    whole = log.read_bytes()
    for damaged in (whole[:-20], whole + b'{"kind": "tra', whole[:100] + b"\xff\xfe" + whole[102:], b"null\n" + whole):
        log.write_bytes(damaged)
        RunFolder(run).forget_metrics_after(40)
        lines = log.read_text().splitlines()
        assert len(lines) >= 39


FLIPS = 200 if os.environ.get("KEEL_FAULTS") == "all" else 40


@pytest.mark.parametrize("kind", ["model", "checkpoint", "tokenizer", "corpus"])
def test_no_damage_goes_unnoticed(
    kind: str,
    finished_run: Path,
    tokenizer_path: Path,
    corpus_path: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """One bit at a random place of a random file; each file shortened; each file removed. All is said by file name."""
    from keel.tokenizers.folder import open_tokenizer

    checkpoint = max((finished_run / "checkpoints").iterdir())
    sources = {"model": finished_run, "checkpoint": checkpoint, "tokenizer": tokenizer_path, "corpus": corpus_path}
    open_it: Callable[[Path], object] = {"tokenizer": open_tokenizer, "corpus": Corpus.open}.get(kind, load_model)
    folder = tmp_path / kind
    shutil.copytree(sources[kind], folder, ignore=shutil.ignore_patterns("checkpoints"))
    open_it(folder)
    watched = [p for p in folder.rglob("*") if p.is_file() and p.name not in FOR_PEOPLE and p.stat().st_size]
    source = random.Random(kind)

    def refused(path: Path) -> None:
        with pytest.raises(UserError) as caught:
            open_it(folder)
        assert "\n" not in str(caught.value) and str(folder) in str(caught.value), (path, caught.value)

    for _ in range(FLIPS):
        path = source.choice(watched)
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[source.randrange(len(whole))] ^= 1 << source.randrange(8)
        path.write_bytes(damaged)
        if path.name != MANIFEST or _means_another_thing(whole, bytes(damaged)):
            refused(path)
        path.write_bytes(whole)
    for path in watched:
        whole = path.read_bytes()
        path.write_bytes(whole[: source.randrange(len(whole))])
        refused(path)
        path.unlink()
        if path.name != MANIFEST or kind == "corpus":  # a missing manifest is said (test_folders.py)
            refused(path)
        path.write_bytes(whole)
    open_it(folder)
    record_property("flips", FLIPS)
    record_property("files shortened and removed", len(watched))


def _means_another_thing(manifest: bytes, damaged: bytes) -> bool:
    """Whether a damaged manifest lists other files or sums; its maker and files for people are not verified."""
    try:
        old, new = (
            {n: e for n, e in json.loads(m)["files"].items() if n not in FOR_PEOPLE} for m in (manifest, damaged)
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return True
    return bool(old != new)
