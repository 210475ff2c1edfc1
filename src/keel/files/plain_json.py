"""Values as JSON that every reader accepts.

In: dictionaries and lists with numbers of any kind. Out: JSON's own types: paths as text, numpy scalars as numbers,
infinities and NaN as null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """The value in JSON's own types."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # json.dumps would make one for each line


def json_line(value: Any) -> str:
    """One line of JSON, without its newline."""
    try:
        return _encode(value)
    except (ValueError, TypeError):  # not finite, or not JSON's own type: rare, and slower
        return _encode(plain(value))
