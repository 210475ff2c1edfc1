"""`keel embed`: one vector per text.

In: a model folder and a file of texts. Out: a .npy file of shape (texts, width), with rows in the order of the file.

Notable choices
- The file is read twice, first to count and check its texts. They are then computed and written in groups, so memory
  does not grow with the file.
- What is written survives a crash (`files/growing.py`). A resumed run begins with a whole group and keeps the number of
  threads, so it gives the same bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keel.batching import groups
from keel.errors import Rejected, UserError
from keel.files.folders import fingerprint
from keel.files.growing import Source, check_growing, growing
from keel.inference.model import EXAMPLE_SIZE, GROUP_SIZE, Model, in_bounded_memory
from keel.inference.progress import row_progress, skip
from keel.inference.whole_rows import scan
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
    resume: bool = False,
    threads: int | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Callable[[Any], None] | None = None,
) -> dict[str, Any]:
    """`resume` continues after the last vector that was kept, or begins if there is none."""
    check_growing(Path(out), resume)
    try:
        numbers = [int(number) for number in layers.split(",")]
    except ValueError:
        raise UserError(f"--layers {layers}: expected layer numbers, such as -1 or 3,4") from None
    data = find_columns(file, LabelledData(text=column), ("text",))
    count = sum(1 for _ in _texts(file, data))
    loaded = Model.load(model, allow_pickle, device)
    settings = json.dumps([data.text, pooling, normalize, prompt, numbers])
    sources = [
        Source("data", file, scan(file).fingerprint),
        Source("weights", model, fingerprint(loaded.path)),
        Source("settings", settings, settings),
    ]
    with growing(Path(out), sources, resume) as target:
        state = target.state or {"texts": 0, "width": 0, "threads": threads or torch.get_num_threads()}
        if not target.complete:
            torch.set_num_threads(threads or state["threads"])
            rest = skip(_texts(file, data), state["texts"])
            tell = row_progress(report or (lambda update: None), count, state["texts"])
            for group in in_bounded_memory(groups(rest, lambda text: EXAMPLE_SIZE + len(text), GROUP_SIZE)):
                vectors = loaded.embed(group, pooling, numbers, normalize=normalize, prompt=prompt)
                header = b"" if state["texts"] else _header(count, vectors)
                state = state | {"texts": state["texts"] + len(vectors), "width": vectors.shape[1]}
                target.append(header + np.ascontiguousarray(vectors).tobytes(), state)
                tell(state["texts"], state["texts"])
            if state["texts"] != count:
                raise UserError(
                    f"{file}: had {count:,} texts at first, and {state['texts']:,} later; leave it unchanged"
                )
            target.publish()
    return {"out": out, "texts": count, "width": state["width"]}


def _header(count: int, vectors: np.ndarray) -> bytes:
    """The beginning of a .npy file of `count` such vectors."""
    written = io.BytesIO()
    described = np.lib.format.dtype_to_descr(vectors.dtype)
    header = {"descr": described, "fortran_order": False, "shape": (count, vectors.shape[1])}
    np.lib.format.write_array_header_1_0(written, header)
    return written.getvalue()


def _texts(file: str, data: LabelledData) -> Iterator[str]:
    """The texts of a file; a row without one is an error, so that vectors stay aligned with rows."""
    for row in read_examples(file, data, ("text",)):
        if isinstance(row, Rejected):
            raise UserError(str(row))
        text = as_text(row.fields["text"])
        if text is None:
            raise UserError(f"{file}, line {row.line}: no text")
        yield text
