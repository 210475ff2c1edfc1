"""Hostile and damaged files: each opening gives a value or one line, quickly and in little memory; never a traceback.

KEEL_FUZZ is the number of mutations of each kind of file.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from keel import machine
from keel.errors import UserError, separate
from keel.files.folders import MANIFEST, verify_folder
from keel.hugging_face.folder import load_model
from keel.recipe import load, load_any
from keel.text.conll import read_conll
from keel.text.labelled import LabelledData
from keel.text.parallel import read_pairs
from keel.text.spans import read_spans
from keel.text.squad import read_squad
from keel.text.tables import read_table
from keel.tokenizers.byte_bpe import ByteBpe
from keel.tokenizers.byte_fallback import ByteFallback
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.wordpiece import WordPiece

Command = Callable[..., subprocess.CompletedProcess[str]]
MUTATIONS = int(os.environ.get("KEEL_FUZZ", "150"))
SECONDS = 1.0  # of CPU time for one case
MEGABYTES = 300  # of memory for one case
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


def memory(key: str) -> float:
    """Of this process, in megabytes: VmRSS now, VmHWM the most since the last reset; 0 where there is no /proc."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(key)), 0.0)


def opens(what: Callable[[], Any]) -> str:
    """Empty if the call returns; else the one line that it raises."""
    reset = Path("/proc/self/clear_refs")
    if reset.is_file():
        reset.write_text("5")  # VmHWM begins anew
    before, began = memory("VmRSS"), time.process_time()
    message = ""
    try:
        what()
    except UserError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 2000, message[:2000]
    took = time.process_time() - began
    assert took < SECONDS, f"{took:.1f} s: {message[:300]}"
    more = memory("VmHWM") - before
    assert more < MEGABYTES, f"{more:.0f} MB: {message[:300]}"
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


TABLE = "text\tlabel\nthe old captain\tgood\n老船长 watches\tbad\nseven lanterns\tgood\n"
LABELLED: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "a.tsv": (TABLE, lambda path: read_table(path, {"text": "text", "label": "label"})),
    "a.csv": (TABLE.replace("\t", ","), lambda path: read_table(path, {"text": "text", "label": "label"})),
    "a.jsonl": (
        '{"text": "the old captain", "label": [[4, 7, "AGE"]]}\n' * 3,
        lambda path: read_spans(path),
    ),
    "a.conll": ("the O\nold B-AGE\n\n老 B-AGE\n船 O\n\n", lambda path: read_conll(path)),
    "a.conllu": ("# text = a\n1\ta\ta\tDET\t_\t_\t0\troot\t_\t_\n\n" * 2, lambda path: read_conll(path)),
    "a.json": (
        json.dumps(
            {
                "data": [
                    {
                        "paragraphs": [
                            {
                                "context": "老 captain",
                                "qas": [{"id": "1", "question": "?", "answers": [{"text": "老", "answer_start": 0}]}],
                            }
                        ]
                    }
                ]
            }
        ),
        lambda path: read_squad(path),
    ),
    "a.en": ("a\nb\nc\n", lambda path: read_pairs(f"{path},{path}", LabelledData(), True)),
}


@pytest.mark.parametrize("name", LABELLED)
def test_labelled_files(name: str, tmp_path: Path) -> None:
    text, read = LABELLED[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    mutation = mutate if name == "a.json" else mutate_bytes
    fuzz(tmp_path / name, mutation, lambda: separate(read(tmp_path / name)))


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


# Known catastrophic patterns, each with a text for which a backtracking matcher needs exponentially many steps (of
# `trailing`: quadratically many), deep recursion or a deep stack.
REGEXES: dict[str, tuple[str, str]] = {
    "nested": ("(a+)+$", "a" * 5000 + "!"),
    "anchored": ("^(a+)+$", "a" * 40 + "!"),
    "overlapping": ("(a|aa)+$", "a" * 60 + "!"),
    "alternatives": ("(a|aa)+$b|(a+)+c", "a" * 60 + "d"),
    "words": ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 60),
    "lookahead": ("(?=(a+)+$)b", "a" * 60 + "!"),
    "address": (r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}", "a" * 60 + "!"),
    "star-of-star": ("(.*)*x$|(x+x+)+y", "x" * 60),
    "back-reference": (r"(a*)*\1b", "a" * 60),
    "repetitions": ("(((a{1,1000}){1,1000}){1,1000})", "a" * 60),
    "stack": ("(?:(a)|(b))*c", "ab" * 500_000),
    "calls": (r"(?<p>\((?:[^()]|\g<p>)*\))", "(" * 200_000),
    "trailing": (r"\s+$", "\t" * 10_000 + "a"),
    "endless": (r"(?<p>a|\g<p>a)*b", "a" * 60),
    "deep": ("(" * 5000 + "a" + ")" * 5000, "aaa"),
}
PANIC = re.compile(  # as Rust's hook reports one on stderr, before Keel can catch it
    r"\nthread '[^']*'.* panicked at \S+\n.*\nnote: run with `RUST_BACKTRACE=1` .*\n", re.ASCII
)


def with_regex(folder: Path, pattern: str, nested: bool) -> Path:
    """A byte-level BPE tokenizer, not from Keel, that splits texts by this pattern (and then as usual, if nested)."""
    ByteBpe.train([TEXT] * 3, 300).save(folder)
    (folder / "tokenizer_config.json").write_text("{}")  # without `made_by`, a manifest is not missed
    content = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    both = {"type": "Sequence", "pretokenizers": [split, content["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(content | {"pre_tokenizer": both if nested else split}))
    return folder


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in-a-sequence"])
@pytest.mark.parametrize("name", REGEXES)
def test_a_catastrophic_regex_is_one_line(name: str, nested: bool, keel: Command, tmp_path: Path) -> None:
    """Opened, and used on the text that hurts, by the real command: an answer, or one line and exit code 2."""
    pattern, text = REGEXES[name]
    folder, file = with_regex(tmp_path / "tokenizer", pattern, nested), tmp_path / "text.txt"
    file.write_text(text)
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    done = keel("tokenizer", "inspect", folder, file, "--json", timeout=20, env=environment)
    said = PANIC.sub("", done.stderr)
    if done.returncode == 0:
        assert json.loads(done.stdout)["tokens"] > 0 and not done.stderr
        return
    assert done.returncode == 2 and done.stdout == ""
    assert len(said.splitlines()) == 1 and said.startswith("keel: ") and len(said) < 1000, done.stderr
    assert "the tokenizers library rejects it (" in said and "Traceback" not in said
    assert len(PANIC.findall(done.stderr)) <= 1, done.stderr


def test_a_catastrophic_regex_still_splits_ordinary_text(tmp_path: Path) -> None:
    """The refusal is of the text that hurts, not of the pattern: the same tokenizer goes on with other texts."""
    pattern, text = REGEXES["nested"]
    tokenizer = open_tokenizer(with_regex(tmp_path, pattern, nested=True))
    before = tokenizer.encode([TEXT])[0].tolist()
    assert tokenizer.decode(before).strip() == TEXT
    assert "retry-limit-in-match" in opens(lambda: tokenizer.encode([TEXT, text]))
    assert "retry-limit-in-match" in opens(lambda: tokenizer.encode_with_offsets(text))
    assert tokenizer.encode([TEXT])[0].tolist() == before


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
