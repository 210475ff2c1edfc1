"""The models that a demo leaves behind, by the names under which they are served.

In: the demo's folder. Out: a folder for each name; none of them before the last one is there.
"""

from __future__ import annotations

from pathlib import Path

DEFAULT = "keel-demo"
MARKER = "demo.json"
MODELS = {  # in the order in which they are made
    "encoder": "model",
    "untrained": "untrained",
    "package": "tasks/package/pretrained",
    "follows": "tasks/follows/pretrained",
    "code": "tasks/code/pretrained",
    "default": "tasks/default/pretrained",
}


def demo_models(folder: Path) -> dict[str, Path]:
    """Empty if the demo has not been run here, or not to its end."""
    found = {name: folder / place for name, place in MODELS.items()}
    whole = (folder / MARKER).is_file() and all((path / "config.json").is_file() for path in found.values())
    return found if whole else {}
