"""Model folders as version 0.1 wrote them: `version_0_1.json` holds what they contain, and what they computed.

For each case: config.json, the names, shapes and types of all tensors, and the losses of the model on fixed rows. The
tensors' values are a function of their names (`values`), so the file holds none. It was recorded with the sources of
0.1:

    git worktree add 0.1 866b13c
    PYTHONPATH=0.1/src python tests/hugging_face/version_0_1.py
"""

from __future__ import annotations

import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

RECORDED = Path(__file__).with_suffix(".json")
WORDS = [f"w{i}" for i in range(19)]
SIZE = 5 + len(WORDS)  # with [PAD], [UNK], [CLS], [SEP], [MASK]
LENGTHS = (12, 9, 9, 4)
SHAPE = {"vocabulary": SIZE, "layers": 2, "width": 8, "heads": 2, "feed_forward": 12, "positions": 16}
ELMO = {"vocabulary": SIZE, "filters": [(1, 3), (2, 4)], "cells": 6, "width": 4, "spelling": 8, "highways": 1}
FASTTEXT = {"vocabulary": SIZE, "width": 4, "buckets": 30, "least": 2, "most": 3, "spelling": 12}
LABELS = {"labels": ["O", "B-X", "I-X"]}
MIX = {"use": "frozen", "layers": "mix", "penalty": 0.01, "bilstm": {"cells": 3}}

# By name: the backbone and its options, then the options of its objectives, or those of a task and its encoder.
PRETRAINED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "bert": ("bert", SHAPE, {"masked_lm": {"share": 0.3, "unit": "span", "longest": 4}, "next_sentence": {}}),
    "bert causal": ("bert", SHAPE | {"attention": {"look": "left"}, "pooler": False}, {"left_to_right": {}}),
    "bert ablation": ("bert", SHAPE | {"attention": {"scaled": False}}, {"masked_lm": {"share": 0.3}}),
    "electra": ("electra", SHAPE | {"embedding_width": 4, "pooler": False}, {"replaced_token": {"generator": 0.5}}),
    "elmo": ("elmo", ELMO, {"both_ways": {}}),
    "elmo characters": ("elmo", ELMO, {"both_ways": {"output": "characters", "correction": 3}}),
    "fasttext": ("fasttext", FASTTEXT, {"skip_gram": {}}),
    "rnn": ("rnn", {"vocabulary": SIZE, "width": 8, "layers": 2}, {"masked_lm": {}}),
    "transformer": ("transformer", SHAPE | {"position": "learned"}, {"masked_lm": {}}),
    "rnn relu": ("rnn", {"vocabulary": SIZE, "width": 8, "activation": "relu"}, {"masked_lm": {}}),
}
TUNED: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "classify": ("transformer", SHAPE | {"pooler": True}, {"kind": "classify", "labels": ["a", "b"]}, {}),
    "classify gpt": ("gpt", SHAPE | {"pooler": True}, {"kind": "classify", "labels": ["a", "b"], "smoothing": 0.1}, {}),
    "tag frozen": ("elmo", ELMO, {"kind": "tag", **LABELS, "crf": True}, MIX),
    "tag both": ("fasttext", FASTTEXT, {"kind": "tag", **LABELS}, MIX | {"bilstm": {"cells": 3, "at": "both"}}),
    "translate": ("transformer", SHAPE, {"kind": "translate", "longest": 9, "beam": 2}, {"restart": 1, "freeze": 1}),
    "translate rnn": ("rnn", {"vocabulary": SIZE, "width": 8}, {"kind": "translate", "decoder": "rnn-attention"}, {}),
    "translate gelu": ("rnn", {"vocabulary": SIZE, "width": 8}, {"kind": "translate"}, {}),
}


def values(name: str, shape: list[int], kind: str) -> torch.Tensor:
    """A tensor's values, from its stored name."""
    number, count = zlib.crc32(name.encode()) % 1000, int(np.prod(shape))
    steps = torch.arange(count, dtype=torch.float64)
    if kind != "torch.float32":  # spellings, rows of n-grams, counts
        return ((steps * 7 + number) % 50 + 1).to(getattr(torch, kind.removeprefix("torch."))).view(shape)
    return (0.6 * torch.sin(1.7 * steps + number)).float().view(shape)


def write(folder: Path, case: dict[str, Any], tokenizer: Any) -> None:
    """The files of a folder."""
    tokenizer.save(folder)
    (folder / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
    for file, tensors in case["tensors"].items():
        save_file({name: values(name, *given) for name, given in tensors.items()}, folder / f"{file}.safetensors")


def rows(make: Any) -> Any:
    """Rows with an answer for every task. `make`: the class."""
    total, count = sum(LENGTHS), len(LENGTHS)
    ids = 5 + np.arange(total) * 7 % (SIZE - 5)
    special = np.zeros(total, bool)
    special[np.cumsum((0, *LENGTHS))[:-1]] = special[np.cumsum(LENGTHS) - 1] = True
    ids[np.cumsum((0, *LENGTHS))[:-1]], ids[np.cumsum(LENGTHS) - 1] = 2, 3
    written = np.array([[2, 7, 9, 8, 3], [2, 6, 3, -1, -1], [2, 5, 5, 3, -1], [2, 9, 3, -1, -1]])
    answers = {"next_sentence": np.arange(count) % 2, "classify": np.arange(count) % 2, "translate": written}
    keys = np.arange(3, 3 + count).astype(np.uint64)
    tags = {"tag": np.where(special, -1, np.arange(total) % 3)}
    return make(ids, LENGTHS, np.zeros(total, np.int64), special, ~special, keys, answers, tags)


@torch.no_grad()
def losses(learner: Any, tokenizer: Any, make: Any) -> dict[str, float]:
    scores = learner.eval()(learner.prepare(rows(make), tokenizer))
    return {name: round(float(score.loss), 5) for name, score in scores.items()}


def record() -> None:
    """With the sources of version 0.1."""
    from keel.tokenizers.words import from_list
    from keel.training.model_folder import assemble, load_model, make_purpose, save_model

    from keel import catalog
    from keel.interfaces import Rows

    tokenizer, found = from_list(WORDS, lowercase=True), {}
    for name, (kind, shape, *rest) in (PRETRAINED | TUNED).items():
        backbone = catalog.find("backbones", kind)
        built = backbone(backbone.Config(**shape))
        purpose = make_purpose({"task": rest[0], "encoder": rest[1]}, "here") if len(rest) == 2 else None
        learner = purpose.learner(built) if purpose else assemble(built, rest[0])
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            save_model(folder, learner, tokenizer, "", purpose)
            case: dict[str, Any] = {"config": json.loads((folder / "config.json").read_text()), "tensors": {}}
            for path in sorted(folder.glob("*.safetensors")):
                with safe_open(path, "pt") as file:
                    stored = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                case["tensors"][path.stem] = {key: [list(t.shape), str(t.dtype)] for key, t in stored.items()}
            write(folder, case, tokenizer)
            loaded = load_model(folder)
            found[name] = case | {"losses": losses(loaded.learner, loaded.tokenizer, Rows)}
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in found.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    record()
