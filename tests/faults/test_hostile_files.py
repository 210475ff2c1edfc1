"""Hostile and damaged files: each opening gives a value or one line, quickly; never a traceback.

KEEL_FUZZ is the number of mutations of each kind of file.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from keel import machine
from keel.errors import UserError
from keel.files.folders import MANIFEST, verify_folder
from keel.hugging_face.folder import load_model
from keel.recipe import load, load_any
from keel.tokenizers.byte_bpe import ByteBpe
from keel.tokenizers.byte_fallback import ByteFallback
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.wordpiece import WordPiece

MUTATIONS = int(os.environ.get("KEEL_FUZZ", "150"))
SECONDS = 1.0  # of CPU time for one case
DEEP: Any = json.loads("[" * 200 + "]" * 200)
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    10**4,
    10**9,
    2**64,
    10**400,
    1e308,
    "",
    "x\ny",
    "x" * 5000,
    [],
    {},
    [None],
    DEEP,
]
NAMES = "abcdefghij"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{name}'] * 9)}]\n" for name, after in itertools.pairwise(NAMES)
)
TEXT = "The old captain watches 7 lanterns, 老船长 [MASK]"


def opens(what: Callable[[], Any]) -> str:
    """Empty if the call returns; else the one line that it raises."""
    began = time.process_time()
    message = ""
    try:
        what()
    except UserError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 2000, message[:2000]
    took = time.process_time() - began
    assert took < SECONDS, f"{took:.1f} s: {message[:300]}"
    return message


def mutate_bytes(data: bytes, source: random.Random) -> bytes:
    mutated = bytearray(data)
    for _ in range(source.randint(1, 4)):
        mutated[source.randrange(len(mutated))] = source.randrange(256)
    return bytes(mutated[: source.randrange(len(mutated))] if source.random() < 0.2 else mutated)


def mutate_value(content: Any, source: random.Random) -> Any:
    """One value somewhere, replaced, deleted or copied to another key."""
    content = json.loads(json.dumps(content))
    place, depth = content, source.randint(0, 4)
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return content
        key = source.choice(keys)
        if depth and isinstance(place[key], dict | list):
            place, depth = place[key], depth - 1
            continue
        if source.random() < 0.2:
            del place[key]
        elif source.random() < 0.1:
            place[key] = place[source.choice(keys)]
        else:
            place[key] = source.choice(VALUES)
        return content


def mutate(data: bytes, source: random.Random) -> bytes:
    """Of a JSON file: bytes, a key twice, or a value."""
    way = source.random()
    if way < 0.3:
        return mutate_bytes(data, source)
    text = json.dumps(mutate_value(json.loads(data), source))
    if way < 0.4:
        key = source.choice(list(json.loads(data)))
        return f"{{{json.dumps(key)}: null, {text[1:]}".encode()
    return text.encode()


@pytest.fixture(scope="module")
def model(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model without a manifest, which would refuse every change."""
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(finished_run, folder, ignore=shutil.ignore_patterns("checkpoints", MANIFEST, "report.html"))
    return folder


def fuzz(path: Path, mutation: Callable[[bytes, random.Random], bytes], what: Callable[[], Any]) -> None:
    whole = path.read_bytes()
    try:
        for number in range(MUTATIONS):
            path.write_bytes(mutation(whole, random.Random(f"{path.name} {number}")))
            try:
                opens(what)
            except BaseException as error:
                raise AssertionError(f"mutation {number} of {path.name}: {error!r}") from error
    finally:
        path.write_bytes(whole)
    what()


def test_config_json(model: Path) -> None:
    fuzz(model / "config.json", mutate, lambda: load_model(model))


def test_tokenizer_json(model: Path) -> None:
    fuzz(model / "tokenizer.json", mutate, lambda: open_tokenizer(model).encode([TEXT]))


def test_tokenizer_config_json(model: Path) -> None:
    fuzz(model / "tokenizer_config.json", mutate, lambda: open_tokenizer(model).encode([TEXT]))


@pytest.mark.parametrize("kind", [ByteBpe, ByteFallback])
def test_tokenizer_json_of_bpe(kind: Any, tmp_path: Path) -> None:
    kind.train([TEXT] * 3, 300).save(tmp_path)
    fuzz(tmp_path / "tokenizer.json", mutate, lambda: open_tokenizer(tmp_path).encode([TEXT]))


def test_safetensors_header(model: Path) -> None:
    def header(data: bytes, source: random.Random) -> bytes:
        size = struct.unpack("<Q", data[:8])[0]
        new = mutate(data[8 : 8 + size], source)
        stated = len(new) if source.random() < 0.9 else source.choice([0, 1, 10**6, 10**9, 2**63])
        return struct.pack("<Q", stated) + new + data[8 + size :]

    fuzz(model / "model.safetensors", header, lambda: load_model(model))


def test_manifest_json(tokenizer_path: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tokenizer_path, tmp_path / "tokenizer"))
    fuzz(folder / MANIFEST, mutate, lambda: verify_folder(folder))


def test_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(load_any("bert-tiny").model_dump(mode="json")))  # JSON is YAML
    fuzz(path, mutate, lambda: load_any(str(path)))


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &a [*a]",
        "a: " + "[" * 5000 + "]" * 5000,
        "training: {seed: " + "9" * 5000 + "}",
        "extends: bert-tiny\ntraining: {seed: 18446744073709551616}",
        "extends: bert-tiny\ntraining: {seed: 0x" + "f" * 9000 + "}",
        "extends: bert-tiny\nname: " + "x" * 100_000 + "/",
        "extends: [1]",
        "when: 2001-99-99",
    ],
    ids=["alias-bomb", "alias-of-itself", "deep", "digits", "seed", "hex", "name", "extends", "date"],
)
def test_hostile_yaml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    message = opens(lambda: load_any(str(path)))
    assert str(path) in message and len(message) < len(str(path)) + 500


def test_a_row_too_long_names_a_key_that_the_backbone_has() -> None:
    assert "model.backbone.positions" in opens(lambda: load("bert-tiny", ["data.length=4000"]))
    message = opens(lambda: load("rnn-mini", ["data.length=2000000"]))
    assert "data.length" in message and "positions" not in message


def test_threads_are_bounded() -> None:
    assert "--threads 100000: give 1 to" in opens(lambda: machine.check_threads(100_000))
    machine.check_threads(2)


@pytest.mark.parametrize("layers", [999, 10**4, 10**9])
def test_layers_without_tensors(model: Path, tmp_path: Path, layers: int) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
    assert str(folder / "config.json") in opens(lambda: load_model(folder))


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_tensors_that_are_no_weights(model: Path, tmp_path: Path, kind: torch.dtype) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    name = "bert.embeddings.LayerNorm.weight"
    save_file(tensors | {name: tensors[name].to(kind)}, folder / "model.safetensors")
    message = opens(lambda: load_model(folder))
    assert name in message and "stored as" in message


def test_a_catastrophic_regex_is_one_line(tmp_path: Path) -> None:
    ByteBpe.train([TEXT] * 3, 300).save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    pattern = {"type": "Split", "pattern": {"Regex": "(a|aa)+$b|(a+)+c"}, "behavior": "Isolated", "invert": False}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"pre_tokenizer": pattern}))
    opens(lambda: open_tokenizer(tmp_path).encode(["a" * 60 + "d"]))


def test_words_of_any_length_are_bounded_in_a_tokenizer(tokenizer_path: Path, tmp_path: Path) -> None:
    content = json.loads((tokenizer_path / "tokenizer.json").read_text())
    content["model"]["max_input_chars_per_word"] = 10**9
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert "max_input_chars_per_word" in opens(lambda: open_tokenizer(tmp_path))


@pytest.mark.parametrize("number", [b"\x1a\x06\x10\xff\xff\xff\xff\x0b", b"\x0a\x06\x08\xff\xff\xff\xff\x0b"])
def test_a_number_instead_of_bytes_reserves_no_memory(number: bytes, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(number)
    assert "spiece.model" in opens(lambda: open_tokenizer(tmp_path))


@pytest.mark.parametrize("kind", [WordPiece, ByteBpe, ByteFallback])
@pytest.mark.parametrize("letters", ["abcdefghij", "0123456789", "1", "a\u0301", " "])
def test_training_on_one_unbroken_word_ends(kind: Any, letters: str) -> None:
    source = random.Random(1)
    word = "".join(source.choice(letters) for _ in range(100_000)) + " ab ab"
    opens(lambda: kind.train([word], 2000))
    assert "too large" in opens(lambda: kind.train([word], 99_999_999_999))


@pytest.mark.parametrize("kind", [WordPiece, ByteBpe, ByteFallback])
def test_ordinary_text_is_learned_from_unchanged(kind: Any, text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [json.loads(line)["text"] for line in text_file.read_text(encoding="utf-8").splitlines()]
    texts.append("\n".join(texts[:50]).replace(" ", "\n"))
    texts.append("字" * 3 + "，" + "".join(texts[:40]).replace(" ", ""))
    bounded = kind.train(texts, 900).vocabulary
    module = __import__(kind.__module__, fromlist=["x"])
    for name in ("cut_words", "cut_runs"):
        monkeypatch.setattr(module, name, lambda texts: texts, raising=False)
    assert kind.train(texts, 900).vocabulary == bounded
