"""A full disk: one line, the previous checkpoint intact, and a resume elsewhere that ends with the same bits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keel.files.folders import verify_folder

Keel = Callable[..., subprocess.CompletedProcess[str]]


def size_on_disk(folder: Path) -> int:
    """Kilobytes in pages of four, as a disk in memory counts them."""
    return sum(-(-path.stat().st_size // 4096) * 4 for path in folder.rglob("*") if path.is_file())


def test_a_full_disk_leaves_the_previous_checkpoint(
    small_disk: Callable[[int], Path],
    keel: Keel,
    pretrain: list[str],
    one_line: Callable[[Any], str],
    finished_run: Path,
    resume_here: Callable[[list[str], Path], None],
    fingerprints: Callable[[Path], tuple[str, str]],
    tmp_path: Path,
) -> None:
    checkpoint = size_on_disk(max((finished_run / "checkpoints").glob("step-*")))
    out = small_disk(int(1.6 * checkpoint)) / "model"
    line = one_line(keel(*pretrain, "--out", out, "--quiet"))
    assert "no space left" in line and "intact" in line and "--resume" in line
    (kept,) = (out / "checkpoints").iterdir()
    assert str(kept) in line and kept.name == "step-00000005"
    verify_folder(kept)
    roomy = Path(shutil.copytree(out, tmp_path / "roomy"))
    resume_here(pretrain, roomy)
    assert fingerprints(roomy) == fingerprints(finished_run)


def test_a_disk_too_small_for_any_checkpoint_is_one_clear_line(
    small_disk: Callable[[int], Path],
    keel: Keel,
    pretrain: list[str],
    one_line: Callable[[Any], str],
    finished_run: Path,
) -> None:
    checkpoint = size_on_disk(max((finished_run / "checkpoints").glob("step-*")))
    out = small_disk(int(0.6 * checkpoint)) / "model"
    line = one_line(keel(*pretrain, "--out", out, "--quiet"))
    assert str(out) in line and "space" in line
    assert not list((out / "checkpoints").iterdir()), "no half of a checkpoint is left"
