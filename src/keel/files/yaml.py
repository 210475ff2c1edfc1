"""YAML files that may come from anywhere.

In: a recipe file, or the value of an override. Out: plain Python values; one line for what is no YAML, or a trap:
megabytes, deep nesting, aliases that expand to very many values, numbers that Python cannot hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from keel.errors import UserError

YAML_BYTES = 1 << 20
YAML_NODES = 20_000  # values in a file, aliases expanded
PROBLEM = 300  # characters of what the parser says


def read_yaml(path: Path) -> dict[str, Any]:
    if path.stat().st_size > YAML_BYTES:
        raise UserError(f"{path}: {path.stat().st_size >> 20} MB; a recipe has less than {YAML_BYTES >> 20}")
    try:
        data = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        marked = error if isinstance(error, yaml.MarkedYAMLError) else yaml.MarkedYAMLError()
        place = f", line {marked.problem_mark.line + 1}" if marked.problem_mark else ""
        problem = " ".join(str(marked.problem or "not text").split())[:PROBLEM]
        raise UserError(f"{path}{place}: not valid YAML ({problem})") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: a recipe is a mapping of keys; `keel recipe show bert-mini` prints one")
    return data


def load_yaml(text: str) -> Any:
    """Raises YAMLError also for values that Python cannot hold, and for aliases that expand to very many values."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _expanded(node, {}) > YAML_NODES:
            raise yaml.MarkedYAMLError(problem=f"more than {YAML_NODES:,} values, with aliases expanded")
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="nested too deeply") from None
    except (ValueError, OverflowError, TypeError, KeyError, IndexError, AttributeError) as error:
        if isinstance(error, UnicodeError):
            raise
        raise yaml.MarkedYAMLError(problem=f"a number or date cannot be read: {error}") from None
    finally:
        loader.dispose()


def _expanded(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The number of values below a node, those of an alias counted at each use."""
    if id(node) not in sizes:
        sizes[id(node)] = YAML_NODES + 1  # for an alias inside its own anchor
        below = node.value if isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) else []
        parts = [part for entry in below for part in (entry if isinstance(entry, tuple) else (entry,))]
        sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]
