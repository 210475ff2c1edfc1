"""Maps our tensor names to those of Hugging Face folders, and back.

In: a table of names, and tensors. Out: the same tensors under the other names. An unknown tensor, a partly missing one,
and copies that differ are errors that name the tensor: nothing is silently dropped or filled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from keel.errors import UserError


@dataclass(frozen=True)
class Name:
    """One row of a family's table. `part` (i, n): their tensor is the i-th of n equal chunks of ours.

    Several of theirs may be the same part of ours (weights that a model shares and they store separately);
    `transposed`: theirs is ours transposed."""

    ours: str
    theirs: str
    part: tuple[int, int] = (0, 1)
    transposed: bool = False

    def taken_from(self, tensor: Tensor) -> Tensor:
        """Their tensor from ours."""
        chunk = tensor if self.part[1] == 1 else tensor.chunk(self.part[1])[self.part[0]]
        return (chunk.t() if self.transposed else chunk).contiguous()


def layer(ours: str, theirs: str, part: tuple[int, int] = (0, 1), transposed: bool = False) -> list[Name]:
    """The weight and the bias of a layer; only the weight is transposed."""
    return [
        Name(f"{ours}.weight", f"{theirs}.weight", part, transposed),
        Name(f"{ours}.bias", f"{theirs}.bias", part),
    ]


def to_published(tensors: dict[str, Tensor], names: list[Name]) -> dict[str, Tensor]:
    """Our tensors under their published names; table rows without a tensor are skipped."""
    nameless = sorted(set(tensors) - {name.ours for name in names})
    assert not nameless, f"no published name for {nameless[0]}: it would be lost"
    published: dict[str, Tensor] = {}
    stored: set[int] = set()  # safetensors does not store two names for the same memory
    for name in names:
        if name.ours in tensors:
            tensor = name.taken_from(tensors[name.ours])
            published[name.theirs] = tensor.clone() if tensor.data_ptr() in stored else tensor
            stored.add(tensor.data_ptr())
    return published


def from_published(published: dict[str, Tensor], names: list[Name], where: Path) -> dict[str, Tensor]:
    """Published tensors under our names."""
    unknown = sorted(set(published) - {name.theirs for name in names})
    if unknown:
        raise UserError(
            f"{where}: unexpected tensor '{unknown[0]}' ({len(unknown)} in all); is this another kind of model?"
        )
    chunks: dict[str, dict[int, Tensor]] = {}
    first: dict[str, Name] = {}
    for name in names:
        if name.theirs not in published:
            continue
        tensor = published[name.theirs].t() if name.transposed else published[name.theirs]
        parts, one = chunks.setdefault(name.ours, {}), first.setdefault(name.ours, name)
        known = parts.setdefault(name.part[0], tensor)
        if known is not tensor and not torch.equal(known, tensor):  # nan does not equal itself
            raise UserError(f"{where}: tensor '{name.theirs}' differs from the tensor it is shared with")
        if tensor.shape != parts[one.part[0]].shape:
            shape, other = tuple(tensor.shape), tuple(parts[one.part[0]].shape)
            raise UserError(f"{where}: tensor '{name.theirs}' has shape {shape}, but '{one.theirs}' has {other}")
    for name in names:
        if name.ours in chunks and name.theirs not in published:
            raise UserError(f"{where}: tensor '{name.theirs}' is missing; the file is incomplete")
    return {
        ours: parts[0] if len(parts) == 1 else torch.cat([parts[i] for i in sorted(parts)])
        for ours, parts in chunks.items()
    }
