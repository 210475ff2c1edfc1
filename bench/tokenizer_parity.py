"""Are the token ids of a folder those of transformers, on text of your own? And those of sentencepiece?

    python bench/tokenizer_parity.py FILE --model FOLDER [--show 3]

In: a file with one text per line, and a model or tokenizer folder, with or without weights. Out: on how many lines the
ids of Keel agree with transformers' (with special tokens, also for pairs of neighbouring lines), and the first that
differ. If the folder has a sentencepiece model, the differing lines are also compared with that library, without
special tokens: where transformers leaves out the normalisation of a model, Keel follows the model. Exit code 1 if a
line agrees with neither.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.special_tokens import frame
from keel.tokenizers.unigram import MODEL_FILES, XLM_R

LINES_AT_ONCE = 1000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path, metavar="FILE", help="one text per line")
    options.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="model or tokenizer folder")
    options.add_argument("--show", type=int, default=3, help="lines to show of those that differ")
    given = options.parse_args()
    with given.file.open(encoding="utf-8", newline="\n") as lines:
        unexplained = compare(given.model, (line.rstrip("\n") for line in lines), given.show)
    sys.exit(1 if unexplained else 0)


def compare(folder: Path, lines: Iterator[str], show: int) -> int:
    """Prints the counts; the number of lines on which Keel agrees with nobody."""
    import transformers

    transformers.logging.set_verbosity_error()
    ours, theirs = open_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)
    print(f"{folder}: {type(ours).__name__} and {type(theirs).__name__}, {ours.size:,} and {len(theirs):,} tokens")
    count = pairs = same_pairs = 0
    differing = list[str]()
    while group := list(islice(lines, LINES_AT_ONCE)):
        inner = ours.encode(group)
        expected = theirs(group)["input_ids"]
        wrong = {number for number, ids in enumerate(inner) if frame(ours, [ids])[0].tolist() != expected[number]}
        differing += [group[number] for number in sorted(wrong)]
        count += len(group)
        both = [(one, other) for one, other in pairwise(range(len(group))) if not {one, other} & wrong]
        for one, other in both:
            found = frame(ours, [inner[one], inner[other]])[0].tolist()
            same_pairs += found == theirs(group[one], group[other])["input_ids"]
        pairs += len(both)
    print(
        f"  equal to transformers on {count - len(differing):,} of {count:,} lines, {same_pairs:,} of {pairs:,} pairs"
    )
    for text in differing[:show]:
        print(f"  differs: {text!r}\n    Keel         {ours.encode([text])[0].tolist()}")
        print(f"    transformers {theirs(text, add_special_tokens=False)['input_ids']}")
    return against_sentencepiece(folder, ours, differing) + pairs - same_pairs


def against_sentencepiece(folder: Path, ours: Any, texts: list[str]) -> int:
    """Of these texts, the number on which the ids are not those of the folder's sentencepiece model either."""
    model = next((folder / name for name in MODEL_FILES if (folder / name).is_file()), None)
    if model is None or not texts:
        return len(texts)
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_file=str(model))
    moved = 1 if ours.roles == XLM_R else 0
    cased = (text.lower() if ours.lowercase else text for text in texts)
    expected = [[ours.unk if id == library.unk_id() else id + moved for id in library.encode(text)] for text in cased]
    same = sum(ids.tolist() == wanted for ids, wanted in zip(ours.encode(texts), expected, strict=True))
    print(f"  of the others, equal to sentencepiece: {same:,} of {len(texts):,}")
    return len(texts) - same


if __name__ == "__main__":
    main()
