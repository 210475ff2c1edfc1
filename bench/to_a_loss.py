"""How long a run_mlm-style loop on transformers takes to a held-out loss: its curve over wall-clock, as JSON lines.

    python bench/to_a_loss.py CORPUS --minutes 15 [--recipe roberta-mini] [--rate 1e-3] > peer.jsonl

The model has the recipe's shape, the rows and masks are the recipe's (so the loss is the one that
`keel compare pretraining ... --judge RECIPE` shows for Keel's own recipes), the rest is as there: padded batches of 32
rows, logits for all tokens, AdamW, linear warm-up and decay, dropout 0.1, fp32. Evaluations do not count as time.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import transformers

from keel.catalog import find
from keel.corpus.stream import Cursor
from keel.hugging_face.folder import assemble
from keel.interfaces import Batch
from keel.machine import prepare_cpu
from keel.pretraining.data import open_data
from keel.recipe import load

ROWS, WARMUP, IGNORED = 32, 0.06, -100


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus")
    options.add_argument("--recipe", default="roberta-mini")
    options.add_argument("--minutes", type=float, default=15.0)
    options.add_argument("--rate", type=float, default=1e-3)
    options.add_argument("--every", type=float, default=30.0, help="seconds between evaluations")
    given = options.parse_args()
    prepare_cpu()
    data = open_data(load(given.recipe), given.corpus, None)
    shape = data.recipe.model.backbone
    with torch.device("meta"):
        hider = assemble(find("backbones", shape.kind)(shape), {"masked_lm": data.judged["masked_lm"]})
    torch.manual_seed(1)
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=shape.vocabulary,
            num_hidden_layers=shape.layers,
            hidden_size=shape.width,
            num_attention_heads=shape.heads,
            intermediate_size=shape.feed_forward,
            max_position_embeddings=shape.positions,
            attn_implementation="sdpa",
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.rate, weight_decay=0.01, fused=True)
    held_out = [hider.prepare(rows, data.tokenizer) for rows in data.held_out]
    spent, steps, tokens, cursor, budget, due = 0.0, 0, 0, Cursor(), 60 * given.minutes, 0.0
    while spent < budget:
        began = time.perf_counter()
        done = spent / budget
        for group in optimizer.param_groups:
            group["lr"] = given.rate * min(done / WARMUP, (1 - done) / (1 - WARMUP))
        rows, cursor = data.streams["main"].take(cursor, ROWS * data.recipe.data.length)
        inputs = padded(hider.prepare(rows, data.tokenizer), data.tokenizer.pad)
        model.train()
        model(**inputs).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        spent, steps, tokens = spent + time.perf_counter() - began, steps + 1, tokens + len(rows.ids)
        if spent >= due or spent >= budget:
            due += given.every
            loss, right = judge(model, held_out, data.tokenizer.pad)
            print(
                json.dumps({"seconds": spent, "steps": steps, "tokens": tokens, "loss": loss, "accuracy": right}),
                flush=True,
            )


def padded(batch: Batch, pad: int) -> dict[str, torch.Tensor]:
    """The same rows as transformers wants them."""
    labels = torch.full_like(batch.ids, IGNORED)
    labels[batch.targets["masked_lm.places"]] = batch.targets["masked_lm.answers"]

    def stack(flat: torch.Tensor, filler: int) -> torch.Tensor:
        parts = flat.split(list(batch.lengths))
        return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=filler)

    seen = stack(torch.ones_like(batch.ids), 0)
    return {"input_ids": stack(batch.ids, pad), "attention_mask": seen, "labels": stack(labels, IGNORED)}


@torch.no_grad()
def judge(model: transformers.BertForMaskedLM, held_out: list[Batch], pad: int) -> tuple[float, float]:
    model.eval()
    loss = right = count = 0.0
    for batch in held_out:
        inputs = padded(batch, pad)
        labels = inputs.pop("labels")
        logits = model(**inputs).logits[labels != IGNORED]
        answers = labels[labels != IGNORED]
        loss += float(torch.nn.functional.cross_entropy(logits, answers, reduction="sum"))
        right += float((logits.argmax(1) == answers).sum())
        count += len(answers)
    return loss / count, right / count


if __name__ == "__main__":
    main()
