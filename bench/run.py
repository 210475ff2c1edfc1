"""`make bench`: Keel's speed compared with a reference library, one line per benchmark. The two sides alternate in one
process, and their medians are compared.

Run it on an otherwise idle machine: any other busy process slows down two training threads many times over.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--text", help=".jsonl or .jsonl.gz file for the corpus benchmark; default: synthetic text")
    options.add_argument(
        "--only", choices=("corpus", "encoding", "mini", "base"), help="run one benchmark instead of all"
    )
    options.add_argument("--rounds", type=int, default=7, help="timed repetitions per side")
    given = options.parse_args()
    path = Path(given.text) if given.text else None
    chosen = [given.only] if given.only else ["corpus", "encoding", "mini", "base"]
    if "corpus" in chosen:  # first, so that torch's threads do not exist yet
        import corpus

        show("corpus build, WordPiece 16k", "MB/s", "encode_batch", corpus.measure(path, 16_000, 3), 0.8)
    if chosen == ["corpus"]:
        return
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    if "encoding" in chosen:
        import encoding

        measured = encoding.measure(encoding.sentences(None), given.rounds)
        show("encoding 512 sentences, MiniLM", "sentences/s", "transformers", measured, 1.5)
    import pretraining

    if "mini" in chosen:
        measured = pretraining.measure(4, 256, given.rounds)
        show("pretraining L4 W256 V30522, 32 x 128", "tokens/s", "transformers", measured, 1.8)
    if "base" in chosen:
        measured = pretraining.measure(12, 768, max(3, given.rounds // 2))
        show("pretraining L12 W768 V30522, 32 x 128", "tokens/s", "transformers", measured, 1.3)


def show(what: str, unit: str, peer: str, measured: dict[str, float], target: float) -> None:
    verdict = "met" if measured["ratio"] >= target else "MISSED"
    print(
        f"{what}: keel {measured['keel']:,.1f} {unit}, {peer} {measured['peer']:,.1f} {unit}, "
        f"ratio {measured['ratio']:.2f} (target {target}: {verdict})",
        flush=True,
    )


if __name__ == "__main__":
    main()
