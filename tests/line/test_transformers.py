"""A folder Keel trained is an ordinary Hugging Face folder: transformers opens it whole and gives the same logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import keel
from keel.values import Batch, Rows

TEXTS = [
    "The old captain watches the harbour at dawn.",
    "Every gull, follows; the KEEL!",
    "老船长记得七盏灯。",
    "Mixed 龙骨 and English, [MASK] too.",
    "An unknown ☃ and an accént.",
]


@pytest.fixture(scope="module")
def theirs(finished_run: Path) -> Any:
    import transformers

    model, loading = transformers.AutoModelForPreTraining.from_pretrained(finished_run, output_loading_info=True)
    assert type(model).__name__ == "BertForPreTraining"
    assert not {kind: names for kind, names in loading.items() if names}, "nothing missing, unexpected or mis-shaped"
    return model.eval()


def test_the_logits_are_the_same(finished_run: Path, theirs: Any) -> None:
    ours = keel.load(str(finished_run))
    learner, tokenizer = ours.learner, ours.tokenizer
    ids = [np.concatenate([[tokenizer.cls], row, [tokenizer.sep]]) for row in tokenizer.encode(TEXTS)]
    ids.sort(key=len, reverse=True)
    lengths = tuple(len(row) for row in ids)
    total = sum(lengths)
    none = np.zeros(total, bool)
    rows = Rows(np.concatenate(ids), lengths, np.zeros(total, np.int64), none, none, np.zeros(len(ids), np.uint64))
    batch = Batch.of(rows, {"masked_lm.places": np.arange(total)})
    with torch.no_grad():
        words = learner.objectives["masked_lm"].predict(learner.encoder(), batch)
        order = learner.objectives["next_sentence"].predict(learner.encoder(), batch)
        for number, (row, part) in enumerate(zip(ids, words.split(lengths), strict=True)):
            answer = theirs(input_ids=torch.from_numpy(row)[None].long())
            assert float((answer.prediction_logits[0] - part).abs().max()) <= 1e-5
            assert float((answer.seq_relationship_logits[0] - order[number]).abs().max()) <= 1e-5


def test_the_tokenizer_gives_the_same_ids(finished_run: Path) -> None:
    import transformers

    published = transformers.AutoTokenizer.from_pretrained(finished_run)
    ours = keel.load(str(finished_run)).tokenizer
    for text, row in zip(TEXTS, ours.encode(TEXTS), strict=True):
        if "[MASK]" not in text:  # only `fill` reads a special token out of a text
            assert published(text)["input_ids"] == [ours.cls, *row.tolist(), ours.sep]
    assert published.mask_token_id == ours.mask and published.pad_token_id == ours.pad


def test_transformers_fills_the_blank_with_the_same_words(finished_run: Path, theirs: Any) -> None:
    import transformers

    text = "The old [MASK] watches the keel."
    inputs = transformers.AutoTokenizer.from_pretrained(finished_run)(text, return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**inputs).prediction_logits[0]
    place = int((inputs["input_ids"][0] == 4).nonzero())
    best = logits[place].softmax(-1).topk(5)
    (ranked,) = keel.load(str(finished_run)).fill(text)
    assert [answer["id"] for answer in ranked] == best.indices.tolist()
    assert np.allclose([answer["probability"] for answer in ranked], best.values.numpy(), atol=1e-6)


def test_a_folder_saved_by_transformers_opens_in_keel_unchanged(
    finished_run: Path, theirs: Any, tmp_path: Path
) -> None:
    import transformers

    theirs.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(finished_run).save_pretrained(tmp_path)
    before, after = keel.load(str(finished_run)), keel.load(str(tmp_path))
    tensors = before.learner.state_dict()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in after.learner.state_dict().items())
    assert tensors.keys() == after.learner.state_dict().keys()
    assert before.tokenizer.fingerprint() == after.tokenizer.fingerprint()
