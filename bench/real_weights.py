"""Do published weights compute the same in Keel as in transformers? Every hidden vector, every masked-LM logit.

    python bench/real_weights.py FOLDER [FOLDER ...] [--texts lines.txt] [--tolerance 1e-4]

In: model folders. Out: for each, the largest absolute differences of the hidden vectors (embeddings and all layers) and
of the logits (all tokens, the whole vocabulary), and on how many lines the token ids agree. Exit code 1 if a difference
is larger than the tolerance, if ids differ, or if only one of the two finds a masked-LM head.

The rows are English and Chinese texts of several lengths, and random tokens up to as many as the model has positions
(at most 512), because texts reach few entries of a small vocabulary. Keel computes them in one flat batch,
transformers one by one, both in fp32 on the CPU, from the ids of Keel's tokenizer.

Notable choices
- transformers decides whether there is a masked-LM head: it is loaded with one, and has it if no weight is missing.
- A config.json without model_type is BERT's: folders of that age have none, and transformers' Auto classes refuse them.
- A vocab.txt alone does not say whether text is lower-cased. transformers always does so then; Keel does so if the
  vocabulary has no capital letters. Ids are compared under Keel's choice, which is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import keel
from keel.inference.model import Model
from keel.interfaces import CachedEncoder
from keel.values import Rows

ENGLISH = "The keel is laid before the ship; everything else is built upon it."
CHINESE = "龙骨先于船身铺设，其余的一切都建在它上面。"
TEXTS = [
    "Yes.",
    ENGLISH,
    "In 1869 the Cutty Sark's crew of 28 sailed at 17.5 knots, didn't they? naïve café, Ærøskøbing!",
    " ".join([ENGLISH] * 8),
    "好。",
    CHINESE,
    "1869年，卡蒂萨克号（Cutty Sark）以17.5节的速度航行，船员28人！",
    CHINESE * 6,
]
RANDOM_LENGTHS = (1, 2, 7, 30, 100)  # tokens, and one row of all positions, or MAX_LENGTH tokens
MAX_LENGTH = 512  # the logits of longer rows would need gigabytes
LINES_AT_ONCE = 1000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", metavar="FOLDER", help="model folder")
    options.add_argument("--texts", type=Path, help="file with one text per line, on which token ids are compared")
    options.add_argument("--tolerance", type=float, default=1e-4, help="largest difference allowed")
    given = options.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    passed = [compare(Path(folder), given.texts, given.tolerance) for folder in given.folders]
    sys.exit(0 if all(passed) else 1)


def compare(folder: Path, texts: Path | None, tolerance: float) -> bool:
    """Prints the figures of one folder; whether all are as they should be."""
    ours = keel.load(str(folder), device="cpu")
    theirs, has_head = reference_model(folder)
    tokenizer, note = reference_tokenizer(folder, ours)
    print(f"{folder}: {type(theirs).__name__} ({ours.learner.backbone.config.layers} layers)")
    if note:
        print(f"  {note}")
    same_ids = compare_ids(ours, tokenizer, iter(TEXTS), "texts of this script")
    if texts:
        with texts.open(encoding="utf-8", newline="\n") as lines:
            same_ids &= compare_ids(ours, tokenizer, (line.rstrip("\n") for line in lines), str(texts))
    same_heads = has_head == ("masked_lm" in ours.learner.objectives)
    if not same_heads:
        print(f"  masked-LM head: transformers {has_head}, Keel {not has_head}")
    close = compare_values(ours, theirs, has_head and same_heads, tolerance)
    return same_ids and same_heads and close


def compare_values(ours: Model, theirs: Any, logits: bool, tolerance: float) -> bool:
    rows = all_rows(ours)
    known = float(np.mean(rows.ids != ours.tokenizer.unk))
    print(f"  {len(rows.lengths)} rows of {min(rows.lengths)} to {max(rows.lengths)} tokens, {known:.0%} not [UNK]")
    targets = {"masked_lm.places": np.arange(len(rows.ids))} if logits else {}
    batch = ours.learner.batch(rows, ours.tokenizer, targets)
    differences: dict[str, list[float]] = {}
    with torch.inference_mode():
        encoder = CachedEncoder(ours.learner.backbone)
        layers = encoder(batch, all_layers=True).layers
        assert layers
        vectors = torch.stack(list(layers))
        predicted = ours.learner.objectives["masked_lm"].predict(encoder, batch) if logits else None
        for start, length in zip(rows.starts, rows.lengths, strict=True):
            part = slice(start, start + length)
            answer = theirs(input_ids=torch.from_numpy(rows.ids[part])[None], output_hidden_states=True)
            found = {"hidden vectors": (vectors[:, part], torch.cat(answer.hidden_states))}
            if predicted is not None:
                found["logits"] = (predicted[part], answer.logits[0])
            for name, (mine, other) in found.items():
                assert mine.shape == other.shape, f"{name}: {tuple(mine.shape)} and {tuple(other.shape)}"
                differences.setdefault(name, []).append(float((mine - other).abs().max()))
    largest = {name: float(np.max(values)) for name, values in differences.items()}  # nan if one is
    for name, difference in largest.items():
        print(f"  largest difference of {name}: {difference:.1e}")
    return all(difference <= tolerance for difference in largest.values())


def all_rows(model: Model) -> Rows:
    """The texts that fit, framed by [CLS] and [SEP], and rows of random tokens; longest first."""
    tokenizer, longest = model.tokenizer, min(model.learner.backbone.max_length, MAX_LENGTH)
    random = np.random.default_rng(0)
    inner = tokenizer.encode(TEXTS)
    inner += [random.integers(0, tokenizer.size, n) for n in (*RANDOM_LENGTHS, longest - 2)]
    rows = [np.concatenate([[tokenizer.cls], ids, [tokenizer.sep]]).astype(np.int64) for ids in inner]
    rows = sorted((row for row in rows if len(row) <= longest), key=len, reverse=True)
    flat = np.concatenate(rows)
    none = np.zeros(len(flat), bool)
    lengths = tuple(len(row) for row in rows)
    return Rows(flat, lengths, np.zeros_like(flat), none, none, np.zeros(len(rows), np.uint64))


def compare_ids(ours: Model, tokenizer: Any, texts: Iterator[str], where: str) -> bool:
    """Prints on how many texts the ids agree, with [CLS] and [SEP] if the reference adds them, and the first that
    differs."""
    frame = tokenizer.cls_token_id is not None
    count, differing = 0, list[str]()
    while group := list(islice(texts, LINES_AT_ONCE)):
        expected = tokenizer(group, add_special_tokens=frame)["input_ids"]
        for text, ids, reference in zip(group, ours.tokenizer.encode(group), expected, strict=True):
            found = [ours.tokenizer.cls, *ids.tolist(), ours.tokenizer.sep] if frame else ids.tolist()
            if found != reference:
                differing.append(text)
        count += len(group)
    print(f"  token ids: equal on {count - len(differing):,} of {count:,} {where}")
    if differing:
        print(f"  the first that differs: {differing[0]!r}")
    return not differing


def reference_model(folder: Path) -> tuple[Any, bool]:
    """transformers' model in fp32, and whether the folder has a masked-LM head."""
    named = "model_type" in read_settings(folder / "config.json")
    config: Any = (transformers.AutoConfig if named else transformers.BertConfig).from_pretrained(folder)
    given = {"config": config, "dtype": torch.float32}
    if type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING:
        model, report = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True, **given)
        if not report["missing_keys"]:
            return model.eval(), True
    return transformers.AutoModel.from_pretrained(folder, **given).eval(), False


def reference_tokenizer(folder: Path, ours: Model) -> tuple[Any, str]:
    """transformers' tokenizer, and a note if the folder leaves something open."""
    settings = read_settings(folder / "tokenizer_config.json")
    bare = (folder / "vocab.txt").exists() and not (folder / "tokenizer.json").exists()
    if not bare or "tokenizer_class" in settings:
        return transformers.AutoTokenizer.from_pretrained(folder), ""
    if "do_lower_case" in settings:
        return transformers.BertTokenizer.from_pretrained(folder), ""
    case = ours.tokenizer.lowercase
    note = f"the folder does not say whether text is lower-cased; Keel: {'yes' if case else 'no'}, and so compared"
    return transformers.BertTokenizer.from_pretrained(folder, do_lower_case=case), note


def read_settings(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


if __name__ == "__main__":
    main()
