"""Names of published models open from the local Hugging Face cache, as huggingface_hub lays it out, whatever reads
them; a folder of that name wins; what is not whole is refused with the command that completes it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import keel
from keel.errors import UserError
from keel.finetuning.labelled import data_fingerprint, fingerprint
from keel.hugging_face.cache import PublicName, find_folder, find_model, hub_cache
from keel.stages import surgery, tokenizer
from keel.stages.corpus import build
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain

NAME = "sea/tiny-bert"
COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a working directory without folders."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def store(folder: Path, name: str = NAME, commit: str = COMMIT, ref: str | None = "main") -> Path:
    """Puts a folder's files into the cache: blobs by checksum, a snapshot of links, a ref."""
    there = hub_cache() / f"models--{name.replace('/', '--')}"
    snapshot = there / "snapshots" / commit
    (there / "blobs").mkdir(parents=True, exist_ok=True)
    left_out = {"checkpoints", "manifest.json", "report.html", "metrics.jsonl"}
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in (path for path in files if left_out.isdisjoint(path.relative_to(folder).parts)):
        blob = there / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copyfile(path, blob)
        link = snapshot / path.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    if ref:
        (there / "refs").mkdir(exist_ok=True)
        (there / "refs" / ref).write_text(commit)
    return snapshot


@pytest.fixture
def snapshot(home: Path, finished_run: Path) -> Path:
    return store(finished_run)


def state(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file below a folder: when it was written, and where it leads or what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or path.is_file():
            content = str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path)] = (path.lstat().st_mtime_ns, content)
    return found


def test_a_name_opens_as_its_folder_does(snapshot: Path, finished_run: Path) -> None:
    text = "the [MASK] keel"
    assert keel.load(NAME).fill(text) == keel.load(str(finished_run)).fill(text)
    assert find_model(NAME) == snapshot
    assert keel.load(NAME).path == snapshot


def test_whoever_takes_a_model_takes_a_name(
    snapshot: Path,
    finished_run: Path,
    corpus_path: Path,
    text_file: Path,
    labelled: Callable[..., Path],
    tiny: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """And nothing is written into the cache by any of them."""
    before, data = state(snapshot.parents[1]), str(labelled("classify", 1, 40))
    changes = ["training.epochs=1", "training.precision=fp32"]
    tuned = finetune(NAME, "classify", train=data, overrides=changes, out="by-name", quiet=True)
    same = finetune(str(finished_run), "classify", train=data, overrides=changes, out="by-folder", quiet=True)
    assert tuned["accuracy"] == same["accuracy"]
    weights = [Path(out, "model.safetensors").read_bytes() for out in ("by-name", "by-folder")]
    assert weights[0] == weights[1]
    short = [*tiny, "training.steps=2"]
    pretrain("bert-tiny", corpus=str(corpus_path), init=NAME, overrides=short, out="further", quiet=True)
    assert surgery.extend_positions(NAME, 128, "longer")["out"] == "longer"
    assert surgery.shrink_vocabulary(NAME, "narrower", texts=[str(text_file)])["size"] > 0
    assert tokenizer.inspect(NAME)["size"] == keel.load(NAME).tokenizer.size
    build([str(text_file)], NAME, "corpus", workers=1)
    assert state(snapshot.parents[1]) == before


def test_the_fingerprint_is_that_of_the_weights(snapshot: Path, finished_run: Path) -> None:
    assert fingerprint(NAME) == fingerprint(str(finished_run)) != fingerprint(str(finished_run.parent))


def test_a_run_is_not_resumed_from_other_weights_of_the_same_name(
    snapshot: Path, finished_run: Path, labelled: Callable[..., Path], tmp_path: Path
) -> None:
    data, changes = str(labelled("classify", 1, 40)), ["training.epochs=1"]
    finetune(NAME, "classify", train=data, overrides=changes, out="run", quiet=True)
    checkpoint = max((finished_run / "checkpoints").iterdir(), key=lambda path: path.name != "step-00000040")
    store(checkpoint, commit=OTHER)
    assert fingerprint(NAME) != fingerprint(str(finished_run))
    with pytest.raises(UserError, match="other data"):
        finetune(NAME, "classify", train=data, overrides=changes, out="run", resume=True, quiet=True)


def test_a_name_that_is_a_recipe_too(
    finished_run: Path, tokenizer_path: Path, labelled: Callable[..., Path], tiny: tuple[str, ...]
) -> None:
    """The model where the cache has it; the recipe where a tokenizer is given, whatever the cache has."""
    data, name = str(labelled("classify", 1, 40)), "bert-base-chinese"
    with pytest.raises(UserError, match=f"is a recipe.*`keel fetch {name}`"):
        finetune(name, "classify", train=data, out="none")
    before = data_fingerprint(name, data, None, str(tokenizer_path))
    snapshot = store(finished_run, name)
    assert data_fingerprint(name, data, None, str(tokenizer_path)) == before
    finetune(name, "classify", train=data, out="tuned", overrides=["training.epochs=1"], quiet=True)
    no_weights(snapshot)
    assert data_fingerprint(name, data, None, str(tokenizer_path)) == before


def test_the_pooling_of_a_sentence_encoder_is_read_from_the_snapshot(finished_run: Path, tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    shutil.copytree(finished_run, encoder, ignore=shutil.ignore_patterns("checkpoints", "manifest.json"))
    steps = [{"path": "1_Pooling", "type": "x.Pooling"}, {"path": "2_Normalize", "type": "x.Normalize"}]
    (encoder / "modules.json").write_text(json.dumps(steps))
    (encoder / "1_Pooling").mkdir()
    (encoder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    store(encoder, "sea/encoder")
    texts = ["the old keel", "a young sailor"]
    assert (keel.load("sea/encoder").embed(texts) == keel.load(encoder).embed(texts)).all()


def test_a_folder_of_that_name_wins(snapshot: Path, finished_run: Path) -> None:
    shutil.copytree(finished_run, NAME)
    assert keel.load(NAME).path == Path(NAME)
    shutil.rmtree(NAME)
    Path(NAME).mkdir()
    with pytest.raises(UserError, match=r"no config\.json"):
        keel.load(NAME)


def test_revisions(finished_run: Path, snapshot: Path) -> None:
    other = store(finished_run, commit=OTHER, ref="v1")
    assert find_model(NAME) == find_model(f"{NAME}@main") == find_model(f"{NAME}@{COMMIT}") == snapshot
    assert find_model(f"{NAME}@v1") == find_model(f"{NAME}@{OTHER}") == other
    with pytest.raises(UserError, match=f"has other revisions of it.*keel fetch {NAME}@v2`"):
        keel.load(f"{NAME}@v2")


@pytest.mark.parametrize("ref", ["../../../../outside", "../snapshots", "", "main", "z" * 40, "\x00", "a" * 41])
def test_a_ref_that_is_no_commit_leads_nowhere(snapshot: Path, home: Path, ref: str) -> None:
    (snapshot.parents[1] / "refs" / "main").write_text(ref)
    assert find_folder(NAME) == Path(NAME)


@pytest.mark.parametrize("given", ["../x", "/tmp", "./sea/tiny-bert", "a/b/c", "a--b", "..", "", "a..b", "x@../y", "é"])
def test_what_is_no_name_is_a_path(given: str) -> None:
    assert PublicName.parse(given) is None and find_folder(given) == Path(given)


def no_config(snapshot: Path) -> str:
    (snapshot / "config.json").unlink()
    return "config.json"


def no_weights(snapshot: Path) -> str:
    (snapshot / "model.safetensors").unlink()
    return "model.safetensors"


def no_blob(snapshot: Path) -> str:
    (snapshot / "tokenizer.json").resolve().unlink()
    return "tokenizer.json"


def no_shard(snapshot: Path) -> str:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    return "model-2.safetensors"


@pytest.mark.parametrize("damage", [no_config, no_weights, no_blob, no_shard])
def test_a_part_of_a_model_is_refused_with_the_command_that_completes_it(
    snapshot: Path, damage: Callable[[Path], str]
) -> None:
    lacking = damage(snapshot)
    with pytest.raises(UserError, match=f"keel fetch {NAME}`") as caught:
        keel.load(NAME)
    assert str(snapshot / lacking) in str(caught.value) and "only a part" in str(caught.value)


def test_a_missing_model_says_how_it_is_fetched(snapshot: Path) -> None:
    for given, said in (
        ("sea/other", "`keel fetch sea/other`"),
        ("tiny-bert", f"Did you mean '{NAME}', which is in the local cache?"),
        ("sea/tiny-bret", f"Did you mean '{NAME}', which is in the local cache?"),
        ("/nowhere/model", "`keel fetch NAME`"),
    ):
        with pytest.raises(UserError, match="no such model folder") as caught:
            keel.load(given)
        assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"HF_HOME": "/a/b"},
        {"HF_HOME": "~/b"},
        {"HF_HOME": "$HOME/c"},
        {"XDG_CACHE_HOME": "/x"},
        {"XDG_CACHE_HOME": "/x", "HF_HOME": "/a"},
        {"HF_HUB_CACHE": "/c", "HF_HOME": "/a"},
        {"HF_HUB_CACHE": "~/c"},
        {"HUGGINGFACE_HUB_CACHE": "/old", "HF_HOME": "/a"},
        {"HUGGINGFACE_HUB_CACHE": "/old", "HF_HUB_CACHE": "/new"},
    ],
    ids=str,
)
def test_the_cache_is_where_huggingface_hub_has_it(given: dict[str, str]) -> None:
    names = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME")
    environment: dict[str, Any] = {k: v for k, v in os.environ.items() if k not in names} | given
    code = "import huggingface_hub.constants as c, keel.hugging_face.cache as k; print(c.HF_HUB_CACHE, k.hub_cache())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    theirs, ours = done.stdout.split()
    assert theirs == ours


def test_links_in_an_ordinary_folder_are_followed_and_what_they_lead_to_is_verified(
    finished_run: Path, tmp_path: Path
) -> None:
    """Weights on another disk, for instance. A manifest vouches for the bytes, wherever they are stored."""
    folder, stored = tmp_path / "model", tmp_path / "stored.safetensors"
    shutil.copytree(finished_run, folder, ignore=shutil.ignore_patterns("checkpoints"))
    (folder / "model.safetensors").rename(stored)
    (folder / "model.safetensors").symlink_to(stored)
    keel.load(folder)
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        keel.load(folder)
    stored.unlink()
    with pytest.raises(UserError, match=r"model\.safetensors: missing"):
        keel.load(folder)
