"""Building: the corpus contains exactly the tokens of the documents, whatever the workers, chunks and crashes."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.corpus import build as building
from keel.corpus.build import BuildProgress, build
from keel.corpus.store import Corpus
from keel.errors import UserError
from keel.text import readers
from keel.text.sentences import split
from keel.tokenizers.wordpiece import WordPiece

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Dr. Smith doesn't know; nobody does!",
    "我们在北京大学学习自然语言处理。",
    "今天天气很好，我们去公园吧！",
    "Pi is 3.14159, isn't it?",
    "Кто там? Ω ≈ naïve café.",
]
SAME_FOLDER = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXTS = st.lists(
    st.one_of(
        st.lists(st.sampled_from([*SENTENCES, "\n", "\n\n", "\x01"]), max_size=6).map(" ".join),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="session")
def tokenizer() -> WordPiece:
    return WordPiece.train(iter(SENTENCES * 3), size=300)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def new_folder(tmp_path: Path) -> Path:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def long_texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(SENTENCES, k=draw.randint(1, 12))) for _ in range(count)]


@SAME_FOLDER
@given(texts=TEXTS, chunk=st.integers(1, 600), piece=st.integers(8, 200), language=st.sampled_from(["en", "zh"]))
def test_the_corpus_contains_the_tokens_of_each_sentence(
    tmp_path: Path, tokenizer: WordPiece, texts: list[str], chunk: int, piece: int, language: str
) -> None:
    folder = new_folder(tmp_path)
    source = write_jsonl(folder / "a.jsonl", [*texts, "At least one document."])
    with pytest.MonkeyPatch.context() as small:
        small.setattr(readers, "PIECE_CHARACTERS", piece)
        small.setattr(building, "CHUNK_BYTES", chunk)
        pieces = list(readers.read([source]))
        account = build([source], tokenizer, folder / "out", language=language, workers=1)
    corpus = Corpus.open(folder / "out")
    expected: list[list[list[int]]] = []
    hashes: list[int] = []
    for ordinal in range(len(texts) + 1):
        mine = [p for p in pieces if p.ordinal == ordinal]
        if mine[-1].rejected:
            continue
        rows = [ids.tolist() for p in mine for ids in tokenizer.encode(split(p.text)) if len(ids)]
        if rows:
            expected.append(rows)
            digest = hashlib.blake2b("".join(p.text for p in mine).encode(), digest_size=8).digest()
            hashes.append(int.from_bytes(digest, "little"))
    found = []
    for document in range(corpus.documents):
        bounds = corpus.sentence_bounds(document)
        found.append([corpus.ids(a, b).tolist() for a, b in pairwise(bounds)])
        ids, starts = corpus.ids(bounds[0], bounds[-1]), corpus.word_starts(bounds[0], bounds[-1])
        assert starts[bounds[:-1] - bounds[0]].all() and not starts[tokenizer.continues[ids]].any()
        if language == "en":
            assert (starts == ~tokenizer.continues[ids]).all()
    assert found == expected
    assert corpus.hashes.tolist() == hashes
    assert account["read"] == len(texts) + 1 == account["kept"] + sum(account["rejected"].values())
    assert account["kept"] == len(expected)


def bad_inputs(folder: Path) -> list[Path]:
    """One of every kind of bad input, and some good ones, in every format."""
    folder.mkdir()
    body = "\n".join(long_texts(40))
    contents = {
        "a.txt": b"good one\n\nbad \xff one\n\n\n\ngood two\n\n\x01\x02\n",
        "b.txt": b"\0\1\2 binary",
        "c.txt": "sixteen".encode("utf-16"),
        "d.txt": b"",
        "e.txt.gz": gzip.compress(body.encode())[:-30],
        "f.jsonl": b'{"text": "good"}\n{"text": 1}\n{}\n[]\nnonsense\n\n'
        b'{"text": ""}\n{"text": "\\ud800"}\n{"text": "\xff"}\n',
        "g.csv": b'text,n\ngood,1\n"two\nlines",2\n\n\xff,3\n,4\n"open,5\n',
        "h.tsv": b"n\ttext\n1\tgood\n2\n",
        "i.jsonl.gz": gzip.compress(b'{"text": "good"}\n' * 3) + b"garbage",
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return sorted(folder.iterdir())


@pytest.mark.parametrize("mode", ["file", "line", "paragraph"])
def test_the_account_adds_up_over_every_kind_of_bad_input(tmp_path: Path, tokenizer: WordPiece, mode: str) -> None:
    files = bad_inputs(tmp_path / "in")
    account = build(files, tokenizer, tmp_path / "out", documents=mode)
    listed = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert account["read"] == account["kept"] + len(listed)
    kinds = [line["reason"].partition(":")[0] for line in listed]
    assert account["rejected"] == {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    expected = """binary file|UTF-16 file|empty|damaged gzip|invalid UTF-8|not a string|no column 'text'|not JSON
        |not a JSON object|not Unicode|unclosed quote|too few columns""".replace("\n        ", "").split("|")
    assert set(kinds) == set(expected) | (set() if mode == "file" else {"no tokens"})
    places = [(files.index(Path(line["file"])), line["ordinal"]) for line in listed]
    assert places == sorted(places) and len(set(places)) == len(places)
    assert Corpus.open(tmp_path / "out").documents == account["kept"]
    invalid = next(line for line in listed if line["file"].endswith("f.jsonl") and "UTF-8" in line["reason"])
    assert files[5].read_bytes()[invalid["offset"] :].startswith(b'{"text": "\xff"}')


def test_a_long_document_rejected_late_leaves_no_trace(
    tmp_path: Path, tokenizer: WordPiece, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "PIECE_CHARACTERS", 100)
    monkeypatch.setattr(building, "CHUNK_BYTES", 150)
    for name in ("HEAD", "BLOCK", "PART"):
        monkeypatch.setattr(f"keel.text.blocks.{name}", 64)
    good, bad = SENTENCES[0].encode() + b"\n", SENTENCES[1].encode() * 30 + b"\xff\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(good + bad + good + bad)
    account = build([tmp_path / "in"], tokenizer, tmp_path / "one", documents="line")
    assert (account["read"], account["kept"], account["rejected"]) == (4, 2, {"invalid UTF-8": 2})
    (tmp_path / "in" / "a.txt").write_bytes(good + good)
    build([tmp_path / "in"], tokenizer, tmp_path / "two", documents="line")
    for name in ("ids", "words", "sentences", "documents", "hashes"):
        one, two = (tmp_path / out / "shards" / f"00000.{name}" for out in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_a_build_that_keeps_nothing_is_an_error_and_leaves_no_folder(tmp_path: Path, tokenizer: WordPiece) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"body": "x"}\n{"body": "y"}\n\n')
    with pytest.raises(UserError, match=r"a\.jsonl: nothing to keep; 2 of 3 .*no column 'text': the record has 'body'"):
        build([source], tokenizer, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_copies_are_in_the_same_split(tmp_path: Path, tokenizer: WordPiece) -> None:
    texts = [f"Document {number}." for number in range(200)]
    many = write_jsonl(tmp_path / "a.jsonl", [*texts, *texts[::-1]])
    build([many], tokenizer, tmp_path / "out", held_out=0.3)
    held = Corpus.open(tmp_path / "out").held_out
    assert (held[:200] == held[200:][::-1]).all() and 30 < held[:200].sum() < 90
    build([write_jsonl(tmp_path / "b.jsonl", texts[::-1])], tokenizer, tmp_path / "other", held_out=0.3)
    assert (Corpus.open(tmp_path / "other").held_out == held[:200][::-1]).all()


def test_two_documents_are_enough_to_hold_one_out(tmp_path: Path, tokenizer: WordPiece) -> None:
    build([write_jsonl(tmp_path / "a.jsonl", ["one", "two"])], tokenizer, tmp_path / "out", held_out=1e-9)
    assert Corpus.open(tmp_path / "out").held_out.sum() == 1


def test_workers_change_no_byte(
    tmp_path: Path, tokenizer: WordPiece, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(building, "CHUNK_BYTES", 4000)
    files = [write_jsonl(tmp_path / "a.jsonl", long_texts(300)), *bad_inputs(tmp_path / "in")]
    seen: list[BuildProgress] = []
    one = build(files, tokenizer, tmp_path / "one", workers=1, report=seen.append)
    two = build(files, tokenizer, tmp_path / "two", workers=2)
    assert one == two
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert capfd.readouterr().err == ""  # nor do they say anything
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert 0 < seen[0].done < seen[-1].done <= seen[-1].total == sum(f.stat().st_size for f in files)
    assert seen[-1].documents == one["kept"] and seen[-1].tokens == Corpus.open(tmp_path / "two").tokens


def test_the_language_is_detected(tmp_path: Path, tokenizer: WordPiece) -> None:
    chinese = write_jsonl(tmp_path / "zh.jsonl", ["", *([SENTENCES[2]] * 3)])
    english = write_jsonl(tmp_path / "en.jsonl", [*([SENTENCES[0]] * 20), SENTENCES[2]])
    for source, language in ((chinese, "zh"), (english, "en")):
        build([source], tokenizer, tmp_path / language)
        build([source], tokenizer, tmp_path / f"{language}-told", language=language)
        corpus = Corpus.open(tmp_path / language)
        assert corpus.info["settings"]["language"] == language
        told = files_of(tmp_path / f"{language}-told")
        assert files_of(tmp_path / language)["shards/00000.words"] == told["shards/00000.words"]
    starts = Corpus.open(tmp_path / "zh").word_starts(0, 16)
    assert not starts.all()  # 北京大学 is one word


KILLED = """
import multiprocessing, os, signal, sys, time
from keel.corpus import build as building, store
from keel.tokenizers.wordpiece import WordPiece

*files, tokenizer, out, workers, moment = sys.argv[1:]
syncs = 0

def fsync(handle):  # every step of saving passes here
    global syncs
    syncs += 1
    if str(syncs) == moment:
        os.kill(os.getpid(), signal.SIGKILL)

def report(progress):
    if moment == "asleep":
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)
        time.sleep(60)

if __name__ == "__main__":
    os.fsync = fsync
    building.CHUNK_BYTES, building.JOURNAL_SECONDS = 3000, 0.0
    store.CorpusWriter.__init__.__defaults__ = (4000,)  # tokens in a shard
    building.build(files, WordPiece.load(tokenizer), out, workers=int(workers), report=report)
"""


@pytest.fixture
def command(tmp_path: Path, tokenizer: WordPiece) -> list[str]:
    """A build in its own process, without the last arguments: out, workers, and the fsync at which it kills itself."""
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "killed.py").write_text(KILLED)
    files = [write_jsonl(tmp_path / "a.jsonl", long_texts(150)), *bad_inputs(tmp_path / "in")]
    return [sys.executable, str(tmp_path / "killed.py"), *map(str, files), str(tmp_path / "tokenizer")]


def test_a_killed_and_restarted_build_gives_the_same_bytes(tmp_path: Path, command: list[str]) -> None:
    """SIGKILL during and between saves, until the build completes."""
    subprocess.run([*command, str(tmp_path / "whole"), "1", "0"], check=True)
    whole = files_of(tmp_path / "whole")
    assert sum(name.endswith(".ids") for name in whole) > 1

    draw = random.Random(3)
    out = tmp_path / "out"
    kept = [0]
    while subprocess.run([*command, str(out), draw.choice("112"), str(draw.randint(5, 40))]).returncode:
        assert not (out / "manifest.json").exists()
        if (out / "journal.json").exists():
            kept.append(json.loads((out / "journal.json").read_text())["kept"])
    assert kept == sorted(kept) and len(set(kept)) > 4  # a kill never loses what was saved
    assert files_of(out) == whole

    # Killed while the manifest was being written, after all data.
    (out / "manifest.json").rename(out / ".writing-manifest.json")
    subprocess.run([*command, str(out), "1", "0"], check=True)
    assert files_of(out) == whole


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_workers_end_with_their_parent(tmp_path: Path, command: list[str]) -> None:
    with subprocess.Popen(
        [*command, str(tmp_path / "out"), "2", "asleep"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        workers = [Path(f"/proc/{pid}/stat") for pid in process.stdout.readline().split()]
        assert len(workers) == 2 and all(worker.exists() for worker in workers)
        process.kill()
    deadline = time.monotonic() + 10
    while any(w.exists() and w.read_text().rpartition(")")[2].split()[0] != "Z" for w in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_obstacles_are_one_line_errors(tmp_path: Path, tokenizer: WordPiece, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write_jsonl(tmp_path / "a.jsonl", long_texts(5)), tmp_path / "out"

    def stop(progress: BuildProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build([source], tokenizer, out, report=stop)
    with pytest.raises(UserError, match="unfinished; run the same"):
        Corpus.open(out)
    with pytest.raises(
        UserError, match=f"{out}: holds an unfinished build with other column; repeat .* or remove {out}"
    ):
        build([source], tokenizer, out, column="body")
    with building._alone_in(out), pytest.raises(UserError, match=r"process \d+ on .* is writing there"):
        build([source], tokenizer, out)
    modified = source.stat().st_mtime_ns
    os.utime(source, (1, 1))
    with pytest.raises(UserError, match="an unfinished build with other files"):
        build([source], tokenizer, out)
    os.utime(source, ns=(1, modified))
    build([source], tokenizer, out)
    with pytest.raises(UserError, match="holds a finished corpus already; choose another --out"):
        build([source], tokenizer, out)
    with pytest.raises(UserError, match="not empty, and not a corpus"):
        build([source], tokenizer, tmp_path)
    with pytest.raises(UserError, match="is a file"):
        build([source], tokenizer, source)
    with pytest.raises(UserError, match="language = 'fr'"):
        build([source], tokenizer, tmp_path / "x", language="fr")
    table = tmp_path / "a.csv"
    table.write_text("id,body\n")
    with pytest.raises(UserError, match="no column 'text'"):
        build([table], tokenizer, tmp_path / "x")
    assert not (tmp_path / "x").exists()  # so that the corrected command can use the folder


def test_a_dead_worker_is_reported(tmp_path: Path, tokenizer: WordPiece, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "CHUNK_BYTES", 3000)
    source = write_jsonl(tmp_path / "a.jsonl", long_texts(2000))

    def kill(progress: BuildProgress) -> None:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()
            child.join()

    with pytest.raises(UserError, match=r"a worker process died \(exit code -9"):
        build([source], tokenizer, tmp_path / "out", workers=2, report=kill)
    build([source], tokenizer, tmp_path / "out", workers=1)
    build([source], tokenizer, tmp_path / "other", workers=1)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "other")


def test_a_full_disk_is_reported_and_the_build_resumes(
    tmp_path: Path, tokenizer: WordPiece, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", long_texts(20))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as small:
        small.setattr("keel.corpus.store.CorpusWriter.write", full)
        with pytest.raises(UserError, match="the disk is full; make room"):
            build([source], tokenizer, tmp_path / "out")
    assert build([source], tokenizer, tmp_path / "out")["kept"] == 20


def test_a_flipped_byte_is_refused_by_name(tmp_path: Path, tokenizer: WordPiece) -> None:
    build([write_jsonl(tmp_path / "a.jsonl", long_texts(5))], tokenizer, tmp_path / "out")
    path = tmp_path / "out" / "shards" / "00000.ids"
    data = np.fromfile(path, np.uint8)
    data[3] ^= 1
    data.tofile(path)
    with pytest.raises(UserError, match=r"00000\.ids: damaged"):
        Corpus.open(tmp_path / "out")
