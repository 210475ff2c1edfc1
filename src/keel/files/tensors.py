"""Tensors on disk: safetensors, whole or in shards. Pickle is read in one place, and only when asked for by name.

In: tensors by name, or the files of a folder. Out: the same on the other side; an error that names the file otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from keel.errors import UserError
from keel.files.folders import DuplicateKey, SealedFiles, read_json, system_errors, without_duplicates

if TYPE_CHECKING:
    from torch import Tensor

HEADER_BYTES = 100_000_000  # what the library accepts


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """A safetensors file with the permissions any other new file would have (the library makes it private)."""
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    with system_errors(path):
        save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(mode)


def first_not_finite(tensors: dict[str, Tensor]) -> str:
    """The name of a tensor with values that are not numbers (NaN or infinite); empty if there is none."""
    import torch

    bad = (name for name, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all())
    return next(bad, "")


def read_tensors(files: SealedFiles, name: str = "model", pickle: bool = False) -> dict[str, Tensor]:
    """The tensors of `name.safetensors`, or of its shards. `pickle=True` also opens `pytorch_model.bin`."""
    tensors: dict[str, Tensor] = {}
    for shard in _shards(files, name):
        path = files.find(shard)
        if path is None:
            return _read_pickled(files, shard, pickle)
        more = _read(path)
        if twice := sorted(tensors.keys() & more.keys()):
            raise UserError(f"{path}: the tensor '{twice[0]}' is in another shard too; restore the folder from a copy")
        tensors |= more
    return tensors


def _shards(files: SealedFiles, name: str) -> list[str]:
    index = files.find(f"{name}.safetensors.index.json")
    if index is None:
        return [f"{name}.safetensors"]
    try:
        shards = sorted(set(read_json(index)["weight_map"].values()))
        outside = [shard for shard in shards if Path(shard).name != shard]
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{index}: not the index of a model in shards; restore it from a copy") from None
    if outside or not shards:
        raise UserError(f"{index}: names {outside[0] if outside else 'no'} file; shards must be in the folder itself")
    return shards


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        _check_header(path)
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RecursionError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path}: cannot be read as safetensors ({reason}); restore it from a copy") from None


def _check_header(path: Path) -> None:
    """Refuses a header with a key twice: readers differ in which of the two tensors they take."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > HEADER_BYTES:
            raise ValueError(f"its header is {size:,} bytes long")
        try:
            json.loads(file.read(size), object_pairs_hook=without_duplicates)
        except DuplicateKey:
            raise
        except ValueError:
            raise ValueError("its header is not JSON") from None


def _read_pickled(files: SealedFiles, wanted: str, allowed: bool) -> dict[str, Tensor]:
    import torch

    path = files.find("pytorch_model.bin")
    if path is None:
        raise UserError(f"{files.folder / wanted}: no such file; is {files.folder} a model folder?")
    if not allowed:
        raise UserError(f"{path} is a pickle, which Keel opens only when asked: add --allow-pickle if you trust it")
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # whatever a damaged or hostile file makes of the unpickler
        reason = f"{type(error).__name__}; only tensors are read, no other objects"
        raise UserError(f"{path}: cannot be read as pickled tensors ({reason}); restore it from a copy") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise UserError(f"{path}: does not contain tensors by name; is it the file of a model?")
    return tensors
