"""`keel embed`: one vector per text.

In: a model folder and a file of texts. Out: a .npy file of shape (texts, width), with rows in the order of the file.

Notable choice: texts are computed and written in groups; memory holds the texts, but the vectors of one group only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from keel.batching import groups
from keel.errors import UserError
from keel.files.folders import check_absent, creating
from keel.inference.model import EXAMPLE_SIZE, GROUP_SIZE, Model
from keel.text.labelled import LabelledData, as_text, find_columns, read_examples


def embed(
    model: str,
    file: str,
    out: str,
    *,
    column: str | None = None,
    pooling: str = "mean",
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
    records, rejected = read_examples(file, data, ("text",))
    if rejected:
        raise UserError(str(rejected[0]))
    texts = [as_text(record.fields["text"]) for record in records]
    if None in texts:
        raise UserError(f"{file}, line {records[texts.index(None)].line}: no text")
    loaded = Model.load(model, allow_pickle, device)
    width = 0
    with creating(Path(out)) as target, target.open("wb") as array:
        for group in groups(map(str, texts), lambda text: EXAMPLE_SIZE + len(text), GROUP_SIZE):
            vectors = np.ascontiguousarray(loaded.embed(group, pooling, numbers))
            if not width:
                width = vectors.shape[1]
                described = np.lib.format.dtype_to_descr(vectors.dtype)
                header = {"descr": described, "fortran_order": False, "shape": (len(texts), width)}
                np.lib.format.write_array_header_1_0(array, header)
            array.write(vectors.tobytes())
    return {"out": out, "texts": len(texts), "width": width}
