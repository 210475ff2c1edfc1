"""`make bench`: one line per figure, Keel against a peer in the same process, alternating, medians compared.

Run it on an otherwise idle machine: two threads collapse when a neighbour is busy, on both sides.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--text", help="a .jsonl or .jsonl.gz file for the corpus row; made-up text otherwise")
    options.add_argument("--only", choices=("corpus", "encoding", "mini", "base"), help="one row instead of all")
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    path = Path(given.text) if given.text else None
    rows = [given.only] if given.only else ["corpus", "encoding", "mini", "base"]
    if "corpus" in rows:  # first, so that torch's threads do not exist yet
        import corpus

        show("corpus build, WordPiece 16k", "MB/s", "encode_batch", corpus.measure(path, 16_000, 3), 0.8)
    if rows == ["corpus"]:
        return
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    if "encoding" in rows:
        import encoding

        measured = encoding.measure(encoding.sentences(None), given.rounds)
        show("encoding 512 sentences, MiniLM", "sentences/s", "transformers", measured, 1.5)
    import pretraining

    if "mini" in rows:
        measured = pretraining.measure(4, 256, given.rounds)
        show("pretraining L4 W256 V30522, 32 x 128", "tokens/s", "transformers", measured, 1.8)
    if "base" in rows:
        measured = pretraining.measure(12, 768, max(3, given.rounds // 2))
        show("pretraining L12 W768 V30522, 32 x 128", "tokens/s", "transformers", measured, 1.3)


def show(what: str, unit: str, peer: str, measured: dict[str, float], bar: float) -> None:
    verdict = "met" if measured["ratio"] >= bar else "MISSED"
    print(
        f"{what}: keel {measured['keel']:,.1f} {unit}, {peer} {measured['peer']:,.1f} {unit}, "
        f"ratio {measured['ratio']:.2f} (bar {bar}: {verdict})",
        flush=True,
    )


if __name__ == "__main__":
    main()
