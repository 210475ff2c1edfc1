"""One writer at a time in a folder.

In: a folder. Out: a block of code in which no other process of Keel writes there; an error that names the process and
its machine otherwise.

Notable choices
- The lock is the operating system's, on the folder itself: it ends with the process, however that ends, and leaves
  nothing behind.
- Where the file system has no locks, a file with the machine and the process keeps others out. If its process has died
  on this machine it is replaced; on another machine that cannot be seen, and the error says which file to remove.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from keel.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

LOCK = ".keel-lock"


@contextlib.contextmanager
def locked(folder: Path, cure: str = "choose another --out") -> Iterator[None]:
    """Keeps other writers out of an existing folder."""
    handle = os.open(folder, os.O_RDONLY)
    marker: Path | None = None
    try:
        try:
            _flock(handle)
        except BlockingIOError:
            raise UserError(f"{folder}: {_holder(handle)} is writing there; wait for its end, or {cure}") from None
        except OSError:
            marker = _mark(folder)
        yield
    finally:
        if marker is not None:
            marker.unlink(missing_ok=True)
        os.close(handle)


@contextlib.contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """Yields whether the folder is locked for this block; False: by another, or this file system has no locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            _flock(handle)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether somebody writes there. Asking takes a shared lock for an instant."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _flock(handle, shared=True)
    except BlockingIOError:
        return True
    except OSError:
        host, process = _read_mark(folder / LOCK)
        return (folder / LOCK).exists() and (host != socket.gethostname() or _is_alive(process))
    finally:
        os.close(handle)
    return False


def _flock(handle: int, shared: bool = False) -> None:
    if fcntl is None:
        raise OSError("no locks on this system")
    fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _holder(handle: int) -> str:
    """The process that holds a lock, as far as this machine knows."""
    inode = os.fstat(handle).st_ino
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            parts = line.split()  # 1: FLOCK ADVISORY WRITE <process> <major>:<minor>:<inode> 0 EOF
            if parts[1] == "FLOCK" and int(parts[5].rpartition(":")[2]) == inode:
                return f"process {parts[4]} on {socket.gethostname()}"
    return "another process, perhaps on another machine,"


def _mark(folder: Path) -> Path:
    """The file that stands for a lock."""
    path = folder / LOCK
    host = socket.gethostname()
    for _ in range(2):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            other = _read_mark(path)
            if other[0] == host and not _is_alive(other[1]):
                path.unlink(missing_ok=True)
                continue
            raise UserError(
                f"{folder}: process {other[1]} on {other[0]} is writing there; wait for its end, or, if it is gone, "
                f"remove {path}"
            ) from None
        with os.fdopen(handle, "w") as file:
            json.dump({"host": host, "process": os.getpid()}, file)
        return path
    raise UserError(f"{folder}: another process has just begun to write there; choose another --out")


def _read_mark(path: Path) -> tuple[str, int]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return str(content["host"]), int(content["process"])
    except (OSError, ValueError, KeyError, TypeError):  # just being written, or damaged
        return "an unknown machine", 0


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True
