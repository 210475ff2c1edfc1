"""`keel embed`: one vector per text.

In: a model folder and a file of texts. Out: a .npy file of shape (texts, width), with rows in the order of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from keel.errors import UserError
from keel.folders import check_absent, creating
from keel.inference.model import Model
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
    vectors = loaded.embed([text or "" for text in texts], pooling, numbers)
    with creating(Path(out)) as target, target.open("wb") as array:
        np.save(array, vectors)
    return {"out": out, "texts": len(vectors), "width": vectors.shape[1]}
