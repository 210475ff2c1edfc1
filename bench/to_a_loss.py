"""Held-out loss over wall-clock time of a training loop like transformers' run_mlm.py, as JSON lines.

    python bench/to_a_loss.py CORPUS --minutes 15 [--recipe roberta-mini] [--rate 1e-3] > peer.jsonl
    python bench/to_a_loss.py CORPUS --minutes 3 --rows 8 --dropout 0 --rate 7e-4     # a better loop

The model has the size that the recipe sets, and the rows and masks are the recipe's, so the loss can be compared with
what `keel compare pretraining ... --eval-recipe RECIPE` shows for Keel's recipes. The rest is as in run_mlm.py: padded
batches of 32 rows, logits for all tokens, AdamW, linear warm-up and decay, dropout 0.1, fp32; fewer rows, no dropout
and a lower rate make it better. The time of evaluations
is not counted.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import transformers

from keel.corpus.stream import Cursor
from keel.learner.build import assemble, make_backbone
from keel.machine import prepare_cpu
from keel.pretraining.data import open_data
from keel.recipe import load
from keel.values import Batch

WARMUP, IGNORED = 0.06, -100


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus", help="corpus folder")
    options.add_argument("--recipe", default="roberta-mini", help="sets the model's size, the rows and the masks")
    options.add_argument("--minutes", type=float, default=15.0, help="training time")
    options.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    options.add_argument("--rows", type=int, default=32, help="rows per step")
    options.add_argument("--dropout", type=float, default=0.1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--every", type=float, default=30.0, help="seconds between evaluations")
    given = options.parse_args()
    prepare_cpu()
    data = open_data(load(given.recipe), given.corpus, None)
    config = data.recipe.model.backbone
    with torch.device("meta"):  # masking needs the objective's settings, not its weights
        masker = assemble(make_backbone(config), {"masked_lm": data.evaluated["masked_lm"]})
    torch.manual_seed(given.seed)
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=config.vocabulary,
            num_hidden_layers=config.layers,
            hidden_size=config.width,
            num_attention_heads=config.heads,
            intermediate_size=config.feed_forward,
            max_position_embeddings=config.positions,
            hidden_dropout_prob=given.dropout,
            attention_probs_dropout_prob=given.dropout,
            attn_implementation="sdpa",
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.rate, weight_decay=0.01, fused=True)
    held_out = [masker.prepare(rows, data.tokenizer) for rows in data.held_out]
    spent, steps, tokens, cursor, budget, due = 0.0, 0, 0, Cursor(), 60 * given.minutes, 0.0
    while spent < budget:
        began = time.perf_counter()
        done = spent / budget
        for group in optimizer.param_groups:
            group["lr"] = given.rate * min(done / WARMUP, (1 - done) / (1 - WARMUP))
        rows, cursor = data.streams["main"].take(cursor, given.rows * data.recipe.data.length)
        inputs = padded(masker.prepare(rows, data.tokenizer), data.tokenizer.pad)
        model.train()
        model(**inputs).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        spent, steps, tokens = spent + time.perf_counter() - began, steps + 1, tokens + len(rows.ids)
        if spent >= due or spent >= budget:
            due += given.every
            loss, accuracy = evaluate(model, held_out, data.tokenizer.pad)
            print(
                json.dumps({"seconds": spent, "steps": steps, "tokens": tokens, "loss": loss, "accuracy": accuracy}),
                flush=True,
            )


def padded(batch: Batch, pad: int) -> dict[str, torch.Tensor]:
    """The batch as padded tensors, as transformers expects them."""
    labels = torch.full_like(batch.ids, IGNORED)
    labels[batch.targets["masked_lm.places"]] = batch.targets["masked_lm.answers"]

    def stack(flat: torch.Tensor, filler: int) -> torch.Tensor:
        parts = flat.split(list(batch.lengths))
        return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=filler)

    seen = stack(torch.ones_like(batch.ids), 0)
    return {"input_ids": stack(batch.ids, pad), "attention_mask": seen, "labels": stack(labels, IGNORED)}


@torch.no_grad()
def evaluate(model: transformers.BertForMaskedLM, held_out: list[Batch], pad: int) -> tuple[float, float]:
    model.eval()
    loss = correct = count = 0.0
    for batch in held_out:
        inputs = padded(batch, pad)
        labels = inputs.pop("labels")
        logits = model(**inputs).logits[labels != IGNORED]
        answers = labels[labels != IGNORED]
        loss += float(torch.nn.functional.cross_entropy(logits, answers, reduction="sum"))
        correct += float((logits.argmax(1) == answers).sum())
        count += len(answers)
    return loss / count, correct / count


if __name__ == "__main__":
    main()
