"""Can a Transformer copy a string, and one longer than any in its training data? For each kind of positions.

All models start from random attention weights, as published. Sinusoidal positions are also tried with heads that are
initialised to attend at fixed offsets (docs/decisions/0020), which makes copying trivial.

    python bench/copy_strings.py [--steps 3000] [--seeds 2]

The models are trained by `keel finetune` to translate strings of 1 to 20 random letters into themselves. Then strings
of each length up to 40 are decoded greedily. Prints one JSON line per model: the fraction of exact copies by length.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import tempfile
from collections import defaultdict
from pathlib import Path

from keel.files.folders import write_folder
from keel.inference.translate import open_translator, translate
from keel.stages.finetune import finetune
from keel.tokenizers.whole_words import from_list

MAX_TRAINED, MAX_TESTED, STRINGS_PER_LENGTH = 20, 40, 50
RECIPE = """
extends: transformer-mini
model:
  backbone:
    layers: 2
    width: 64
    heads: 4
    feed_forward: 256
    position: {position}
    attention_init: {init}
    positions: 128
    dropout: 0.0
"""
VARIANTS = [("sinusoid", "noise"), ("learned", "noise"), ("rotary", "noise"), ("sinusoid", "neighbours")]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=3000, help="training steps")
    options.add_argument("--seeds", type=int, default=2, help="models per variant")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        with write_folder(here / "tokenizer", {"made_by": "bench/copy_strings.py"}) as tokenizer:
            from_list(list(string.ascii_lowercase), lowercase=True).save(tokenizer)
        draw = random.Random(0)
        for name, count in (("train", 20_000), ("dev", 200)):
            lines = [text(draw, draw.randint(1, MAX_TRAINED)) for _ in range(count)]
            (here / name).write_text("".join(f"{line}\n" for line in lines))
        tested = [text(draw, length) for length in range(1, MAX_TESTED + 1) for _ in range(STRINGS_PER_LENGTH)]
        for position, init in VARIANTS:
            recipe = here / f"{position}-{init}.yaml"
            recipe.write_text(RECIPE.format(position=position, init=init))
            for seed in range(1, given.seeds + 1):
                model = here / f"{position}-{init}-{seed}"
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
                outputs = translate(open_translator(str(model), beam=1), tested)
                correct = defaultdict[int, int](int)
                for line, answer in zip(tested, outputs, strict=True):
                    correct[len(line.split())] += answer["translation"] == line
                copied = {length: correct[length] / STRINGS_PER_LENGTH for length in range(1, MAX_TESTED + 1)}
                facts = {"position": position, "attention_init": init, "seed": seed, "copied": copied}
                print(json.dumps(facts), flush=True)


def text(draw: random.Random, length: int) -> str:
    return " ".join(draw.choice(string.ascii_lowercase) for _ in range(length))


if __name__ == "__main__":
    main()
