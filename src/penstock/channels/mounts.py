"""Whether a folder lies on a disk of this computer. Only such files may be mapped into memory.

A mapped file on a network file system may be deleted or cut off by another computer: who then touches its rows gets no
error, but the signal SIGBUS, which ends the worker process with all that runs in it.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
#: What is not in this list may be a network (nfs, cifs, fuse.*, 9p, virtiofs, lustre, ceph, ...) and is copied.
LOCAL_TYPES = frozenset(
    (
        *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3", "overlay", "ramfs"),
        *("reiserfs", "rootfs", "tmpfs", "vfat", "xfs", "zfs"),
    )
)


@functools.lru_cache(maxsize=1024)
def is_local(folder: str) -> bool:
    """Whether a folder is on a disk of this computer. Each folder is looked at once: mounts do not change under a
    running topology."""
    try:
        mounts = MOUNTS.read_text(errors="replace")
    except OSError:
        return False  # this is not Linux, so the type of the file system is not known
    return type_of(str(Path(folder).resolve()), mounts) in LOCAL_TYPES


def type_of(path: str, mounts: str) -> str | None:
    """The type of the file system that an absolute path without links lies on, by the lines of /proc/mounts."""
    found, length = None, -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1]).rstrip("/")
        # Of two at the same place the one that was mounted later hides the other.
        if (path == point or path.startswith(f"{point}/")) and len(point) >= length:
            found, length = fields[2], len(point)
    return found
