"""The folders that a standalone cluster's workers make for executors, with what each executor has printed.

A worker deletes none of them while the application runs, nor those of earlier runs, so a topology that is scaled out
and in for days, or started again and again on its state, would fill the disk with the last words of executors that
nobody misses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from penstock.logs import delete_folder

#: How many executors' folders stay of the machines that are gone: somebody may look why the last ones went.
KEPT = 3


def forget_gone(work_dir: Path, machines: Collection[str]) -> None:
    """Delete the folders of executors whose machines are gone, but for the newest; `machines` are those that are
    there, whose folders are left alone."""
    numbered = [folder for folder in work_dir.glob("*/app-*/*") if folder.name.isdigit()]
    gone = [folder for folder in numbered if folder.relative_to(work_dir).parts[0] not in machines]
    for folder in sorted(gone, key=_last_words)[:-KEPT]:
        delete_folder(folder)
        with contextlib.suppress(OSError):  # the folder of the application has others in it
            folder.parent.rmdir()


def _last_words(folder: Path) -> tuple[float, str, int]:
    """When an executor has printed something for the last time; where that is the same, the order of their coming."""
    newest = 0.0
    for file in (folder / "stderr", folder / "stdout"):
        with contextlib.suppress(OSError):  # the executor has printed nothing, or somebody else tidies up
            newest = max(newest, file.stat().st_mtime)
    return newest, folder.parent.name, int(folder.name)
