"""Nothing that Keel did not write is removed or followed, writers share no name, and only sealed files are read."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import keel
from keel.errors import UserError
from keel.files import folders, locks
from keel.files.folders import MANIFEST, TEMPORARY, SealedFiles, creating, read_json, write_file, write_folder
from keel.files.tensors import read_tensors


def test_what_appears_meanwhile_is_left_alone_and_the_result_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = pytest.raises(UserError, match=r"left unchanged; the result is in .*out-2")
    with said as caught, write_folder(out, {}) as new:
        (new / "result").write_text("mine")
        out.mkdir()
        (out / "my-thesis.txt").write_text("yours")
    assert "\n" not in str(caught.value)
    assert (out / "my-thesis.txt").read_text() == "yours" and [p.name for p in out.iterdir()] == ["my-thesis.txt"]
    assert (tmp_path / "out-2" / "result").read_text() == "mine"
    folders.verify_folder(tmp_path / "out-2")
    assert not list(tmp_path.glob(f"{TEMPORARY}*"))


def test_a_file_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="left unchanged"), creating(tmp_path / "v.txt") as new:
        new.write_text("mine")
        (tmp_path / "v.txt").write_text("yours")
    assert (tmp_path / "v.txt").read_text() == "yours" and len(list(tmp_path.iterdir())) == 1


def test_two_writers_do_not_disturb_each_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match="out-2"), write_folder(out, {}) as first:
        (first / "result").write_text("first")
        with write_folder(out, {}) as second:
            (second / "result").write_text("second")
    assert (out / "result").read_text() == "second" and (tmp_path / "out-2" / "result").read_text() == "first"


def test_leftovers_of_a_dead_writer_are_removed_and_those_of_a_living_one_are_not(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from keel.files.folders import write_folder
with write_folder(Path({str(tmp_path / "out")!r}), {{}}) as folder:
    (folder / "half").write_text("written")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], timeout=60)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(f"{TEMPORARY}out-")
    with write_folder(tmp_path / "out", {}) as living:
        assert not left.exists()
        with write_folder(tmp_path / "out", {}) as other:
            assert living.exists() and other != living
        (tmp_path / "out").rename(tmp_path / "elsewhere")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere", "out"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither a planted temporary name nor an --out that links to an empty folder."""
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    (tmp_path / f"{TEMPORARY}a.txt").symlink_to(precious)
    (tmp_path / f"{TEMPORARY}out").symlink_to(tmp_path)
    (tmp_path / f"{TEMPORARY}out-x").symlink_to(tmp_path)
    write_file(tmp_path / "a.txt", "new")
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    with write_folder(tmp_path / "out", {}) as new:
        (new / "result").write_text("mine")
    folders.remove_temporary(tmp_path)
    assert precious.read_text() == "precious"
    assert (tmp_path / "out").is_symlink() and (tmp_path / "real" / "result").read_text() == "mine"


def test_a_link_to_a_file_that_is_the_same_leaves_nothing_behind(tmp_path: Path) -> None:
    """Renaming one name of a file over another of the same file does nothing, and would leave the temporary one."""
    (tmp_path / "a").write_text("text")
    for _ in range(2):
        folders.link_or_copy(tmp_path / "a", tmp_path / "b")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("what", ["file", "folder", "nowhere", "below a file"])
def test_an_out_that_cannot_be_written_is_refused_before_the_work(what: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if what == "file":
        out.write_text("")
    elif what == "folder":
        (out / "inner").mkdir(parents=True)
    elif what == "nowhere":
        out.symlink_to(tmp_path / "gone")
    else:
        out.write_text("")
        out = out / "below"
    with pytest.raises(UserError, match=str(tmp_path / "out")):
        folders.check_free(out)


def test_a_folder_without_permission_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    for check in (folders.check_free, folders.check_absent):
        with pytest.raises(UserError, match="no permission to write"):
            check(tmp_path / "new" / "out")


# ---------------------------------------------------------------------------------------------------------------------
# Locks


def test_a_lock_names_its_process_and_machine(tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match=rf"process {os.getpid()} on \S+ is writing there")
    with locks.locked(tmp_path), refused, locks.locked(tmp_path):
        pass
    with locks.locked(tmp_path):
        assert not list(tmp_path.iterdir())


def test_without_locks_of_the_system_a_file_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(handle: int, how: int) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    refused = pytest.raises(UserError, match=rf"process {os.getpid()} on .*remove .*{locks.LOCK}")
    with locks.locked(tmp_path), refused, locks.locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    import socket

    (tmp_path / locks.LOCK).write_text(json.dumps({"host": socket.gethostname(), "process": dead.pid}))
    with locks.locked(tmp_path):
        pass
    (tmp_path / locks.LOCK).write_text(json.dumps({"host": "elsewhere", "process": dead.pid}))
    with pytest.raises(UserError, match=f"process {dead.pid} on elsewhere"), locks.locked(tmp_path):
        pass


# ---------------------------------------------------------------------------------------------------------------------
# The seal


@pytest.fixture
def model(finished_run: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(finished_run, copy, ignore=shutil.ignore_patterns("checkpoints"))
    return copy


def test_files_that_the_manifest_does_not_list_are_never_read(model: Path, tmp_path: Path) -> None:
    """Weights from another folder, smuggled in by an index; a head beside the model; another vocabulary."""
    before = keel.load(str(model)).encode(["the old captain"])[0]
    other = tmp_path / "other"
    other.mkdir()
    zeros = {name: torch.zeros_like(t) for name, t in read_tensors(SealedFiles(model)).items()}
    save_file(zeros, other / "model.safetensors")
    index = {"weight_map": dict.fromkeys(zeros, "../other/model.safetensors")}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file({"keel.objectives.x.weight": torch.zeros(1)}, model / "keel.safetensors")
    (model / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert (keel.load(str(model)).encode(["the old captain"])[0] == before).all()


def test_an_index_may_not_lead_out_of_its_folder(model: Path) -> None:
    (model / MANIFEST).unlink()
    names = read_tensors(SealedFiles(model))
    for shard in ("../other/model.safetensors", "/etc/passwd", "a/b.safetensors"):
        (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(names, shard)}))
        with pytest.raises(UserError, match="in the folder itself"):
            keel.load(str(model))


def test_a_missing_manifest_is_said(model: Path, tokenizer_path: Path, tmp_path: Path, capfd: Any) -> None:
    keel.load(str(model))
    assert capfd.readouterr().err == ""
    (model / MANIFEST).unlink()
    keel.load(str(model))
    (line,) = capfd.readouterr().err.splitlines()
    assert str(model) in line and "manifest.json is missing" in line
    from keel.tokenizers.folder import open_tokenizer

    alone = tmp_path / "alone"
    shutil.copytree(tokenizer_path, alone)
    open_tokenizer(alone)
    assert capfd.readouterr().err == ""
    (alone / MANIFEST).unlink()
    open_tokenizer(alone)
    assert "manifest.json is missing" in capfd.readouterr().err


def test_the_tokenizer_of_a_model_folder_is_verified_too(model: Path) -> None:
    from keel.tokenizers.folder import open_tokenizer

    content = json.loads((model / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (model / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"tokenizer.json: damaged"):
        open_tokenizer(model)


def test_files_for_people_may_be_edited(model: Path) -> None:
    for name in folders.FOR_PEOPLE:
        (model / name).write_text("edited")
    keel.load(str(model))


def test_a_tensor_twice_in_a_header_is_refused(tmp_path: Path) -> None:
    entry = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'
    header = f'{{"a":{{{entry}}},"a":{{{entry}}}}}'.encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(UserError, match="'a' occurs twice"):
        read_tensors(SealedFiles(tmp_path))


@pytest.mark.parametrize(
    "content", [b"{", b"[" * 100_000, b'{"a": 1, "a": 2}', b"\xff", b"1" * 5000, b"", b'{"a": NaN} x']
)
def test_bad_json_is_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=str(path)) as caught:
        read_json(path)
    assert "\n" not in str(caught.value)
