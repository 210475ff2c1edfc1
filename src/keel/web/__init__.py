"""The page of `keel serve`: plain ES modules, one style sheet, no build step, nothing from other servers.

In: nothing. Out: its files by name. The browser gets exactly these, so no name in a request ever reaches the file
system.
"""

from __future__ import annotations

from pathlib import Path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def page_files() -> dict[str, tuple[bytes, str]]:
    """The content and the media type of each file, by its path below this folder."""
    here = Path(__file__).parent
    paths = [path for path in sorted(here.rglob("*")) if path.suffix in TYPES]
    return {path.relative_to(here).as_posix(): (path.read_bytes(), TYPES[path.suffix]) for path in paths}
