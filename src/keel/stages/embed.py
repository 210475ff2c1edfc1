"""`keel embed`: one vector per text.

In: a model folder and a file of texts. Out: a .npy file of shape (texts, width), with rows in the order of the file.

Notable choice: the file is read twice, first to count and check its texts. They are then computed and written in
groups, so memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keel.batching import groups
from keel.errors import Rejected, UserError
from keel.files.folders import check_absent, creating
from keel.inference.model import EXAMPLE_SIZE, GROUP_SIZE, Model
from keel.text.labelled import LabelledData, as_text, find_columns, read_examples


def embed(
    model: str,
    file: str,
    out: str,
    *,
    column: str | None = None,
    pooling: str | None = None,
    normalize: bool | None = None,
    prompt: str | None = None,
    layers: str = "-1",
    device: str = "auto",
    allow_pickle: bool = False,
) -> dict[str, Any]:
    check_absent(Path(out))
    try:
        numbers = [int(number) for number in layers.split(",")]
    except ValueError:
        raise UserError(f"--layers {layers}: expected layer numbers, such as -1 or 3,4") from None
    data = find_columns(file, LabelledData(text=column), ("text",))
    count = sum(1 for _ in _texts(file, data))
    loaded = Model.load(model, allow_pickle, device)
    width, written = 0, 0
    with creating(Path(out)) as target, target.open("wb") as array:
        for group in groups(_texts(file, data), lambda text: EXAMPLE_SIZE + len(text), GROUP_SIZE):
            vectors = np.ascontiguousarray(loaded.embed(group, pooling, numbers, normalize=normalize, prompt=prompt))
            if not width:
                width = vectors.shape[1]
                described = np.lib.format.dtype_to_descr(vectors.dtype)
                header = {"descr": described, "fortran_order": False, "shape": (count, width)}
                np.lib.format.write_array_header_1_0(array, header)
            array.write(vectors.tobytes())
            written += len(vectors)
        if written != count:
            raise UserError(f"{file}: had {count:,} texts at first, and {written:,} a moment later; leave it unchanged")
    return {"out": out, "texts": count, "width": width}


def _texts(file: str, data: LabelledData) -> Iterator[str]:
    """The texts of a file; a row without one is an error, so that vectors stay aligned with rows."""
    for row in read_examples(file, data, ("text",)):
        if isinstance(row, Rejected):
            raise UserError(str(row))
        text = as_text(row.fields["text"])
        if text is None:
            raise UserError(f"{file}, line {row.line}: no text")
        yield text
