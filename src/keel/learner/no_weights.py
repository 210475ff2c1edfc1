"""Modules without weights: their shapes and settings, for weights that come from a file or are never needed.

In: code that makes modules. Out: the same modules, with parameters on torch's meta device.

Notable choice: `torch.device("meta")` alone would still run the random initialisation of every layer, and on the meta
device that imports torch's compiler and sympy: one and a half seconds, twice the rest of a small model's loading. On
this device it changes nothing, so it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

INITIALISERS = (
    torch.nn.init.normal_,
    torch.nn.init.uniform_,
    torch.nn.init.kaiming_uniform_,
    Tensor.normal_,
    Tensor.uniform_,
)


@contextmanager
def no_weights() -> Iterator[None]:
    """Within the block, modules are made without weights."""
    with torch.device("meta"), _NoInitialisation():
        yield


class _NoInitialisation(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in INITIALISERS:
            tensor = args[0] if args else given["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **given)
