"""Can a Transformer copy a string, and one longer than any it was trained on? With each kind of positions; JSON lines.

All start as published, where no head knows a place; sinusoidal positions also with heads that start on the diagonal
(docs/decisions/0020), for which copying is no task at all.

    python bench/copy_strings.py [--steps 3000] [--seeds 2]

Strings of 1 to 20 random letters are learnt by the real command's code, a translation of each string into itself. Then
strings of each length up to 40 are copied greedily, and the share of those copied without a mistake is counted.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import tempfile
from collections import defaultdict
from pathlib import Path

from keel.inference.translate import open_translator, translate
from keel.stages.finetune import finetune
from keel.tokenizers.whole_words import from_list

TRAINED, LONGEST, EACH = 20, 40, 50
RECIPE = """
extends: transformer-mini
model:
  backbone:
    layers: 2
    width: 64
    heads: 4
    feed_forward: 256
    position: {position}
    attention_init: {start}
    positions: 128
    dropout: 0.0
"""
WAYS = [("sinusoid", "noise"), ("learned", "noise"), ("rotary", "noise"), ("sinusoid", "neighbours")]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=3000)
    options.add_argument("--seeds", type=int, default=2)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        from_list(list(string.ascii_lowercase), lowercase=True).save(here / "tokenizer")
        draw = random.Random(0)
        for name, count in (("train", 20_000), ("dev", 200)):
            lines = [text(draw, draw.randint(1, TRAINED)) for _ in range(count)]
            (here / name).write_text("".join(f"{line}\n" for line in lines))
        asked = [text(draw, length) for length in range(1, LONGEST + 1) for _ in range(EACH)]
        for position, start in WAYS:
            recipe = here / f"{position}-{start}.yaml"
            recipe.write_text(RECIPE.format(position=position, start=start))
            for seed in range(1, given.seeds + 1):
                model = here / f"{position}-{start}-{seed}"
                finetune(
                    str(recipe),
                    "translate",
                    tokenizer=str(here / "tokenizer"),
                    train=f"{here / 'train'},{here / 'train'}",
                    dev=f"{here / 'dev'},{here / 'dev'}",
                    out=str(model),
                    overrides=[
                        f"training.steps={given.steps}",
                        f"training.evaluate_steps={given.steps}",
                        f"training.seed={seed}",
                        "training.batch_size=64",
                        "training.learning_rate=1e-3",
                        "task.label_smoothing=0.0",
                        "task.dropout=0.0",
                        "encoder.dropout=0.0",
                        "task.beam_size=1",
                    ],
                    quiet=True,
                )
                said = translate(open_translator(str(model), beam=1), asked)
                right = defaultdict(int)
                for line, answer in zip(asked, said, strict=True):
                    right[len(line.split())] += answer["translation"] == line
                shares = {length: right[length] / EACH for length in range(1, LONGEST + 1)}
                facts = {"position": position, "start": start, "seed": seed, "copied": shares}
                print(json.dumps(facts), flush=True)


def text(draw: random.Random, length: int) -> str:
    return " ".join(draw.choice(string.ascii_lowercase) for _ in range(length))


if __name__ == "__main__":
    main()
