"""Segments are mapped only where nobody else can take them away: on disks of this computer."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.channels import mounts
from penstock.channels.segments import SegmentStore

TABLE = """\
proc /proc proc rw 0 0
/dev/vda1 / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
server:/export /mnt/share nfs4 rw 0 0
//server/x /mnt/with\\040space cifs rw 0 0
bucket /mnt/share/bucket fuse.s3fs rw 0 0
/dev/vdb1 /mnt/share/local xfs rw 0 0
server:/home /home nfs rw 0 0
/dev/vdc1 /home btrfs rw 0 0
short
"""


@pytest.mark.parametrize(
    ("path", "type_"),
    [
        ("/", "ext4"),
        ("/var/lib/penstock", "ext4"),
        ("/dev/shm/x", "tmpfs"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/segments", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/with space/x", "cifs"),
        ("/mnt/share/bucket/x", "fuse.s3fs"),
        ("/mnt/share/local/x", "xfs"),
        ("/home/me", "btrfs"),
    ],
)
def test_the_file_system_of_a_path(path: str, type_: str) -> None:
    assert mounts.type_of(path, TABLE) == type_


def test_what_is_not_known_is_not_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mounts.type_of("/x", "") is None
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    mounts.is_local.cache_clear()
    assert not mounts.is_local(str(tmp_path))
    mounts.is_local.cache_clear()


def test_links_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share, table = tmp_path / "share", tmp_path / "mounts"
    share.mkdir()
    (tmp_path / "link").symlink_to(share)
    table.write_text(f"/dev/vda1 / ext4 rw 0 0\nserver:/x {share.resolve()} nfs rw 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)
    mounts.is_local.cache_clear()
    assert mounts.is_local(str(tmp_path))
    assert not mounts.is_local(str(tmp_path / "link"))
    mounts.is_local.cache_clear()


READ_AND_LOSE = """
import os, sys
from pathlib import Path
from penstock.channels import mounts
from penstock.channels.segments import SegmentStore
root, path = sys.argv[1:]
mounts.MOUNTS = Path(root) / "mounts"
[batch] = SegmentStore(root).read(path)
# What a network file system does with pages of a file that another computer has deleted.
os.truncate(f"{root}/{path}", 0)
print(sum(batch.column(0).to_pylist()))
"""


@pytest.mark.parametrize("type_", ["nfs4", "fuse.glusterfs", "something-new"])
def test_a_segment_on_a_network_that_is_lost_while_it_is_read_does_not_end_the_worker(
    type_: str, tmp_path: Path
) -> None:
    result = read_and_lose(tmp_path, type_)
    assert result.returncode == 0, f"ended by {result.returncode}: {result.stderr}"
    assert int(result.stdout) == sum(range(50_000))


def test_a_segment_on_a_disk_of_this_computer_is_mapped(tmp_path: Path) -> None:
    """Shown by what happens to a mapped file that is cut off, which nobody does with a local segment."""
    assert read_and_lose(tmp_path, "ext4").returncode == -signal.SIGBUS


KEEP_AND_LOSE = """
import os, sys
from pathlib import Path
from penstock.channels import mounts
from penstock.channels.kept_pieces import KeptPieces
root = Path(sys.argv[1])
mounts.MOUNTS = root / "mounts"
kept = KeptPieces(root / "kept", 1 << 30)
kept.get("a", lambda came: bytes([1]) * 500_000)
found = kept.get("a", lambda came: None)
[file] = (root / "kept").glob("*.piece")
os.truncate(file, 0)
print(sum(found.to_pybytes()))
"""


def test_a_piece_that_is_kept_on_a_network_and_lost_does_not_end_the_worker(tmp_path: Path) -> None:
    """The temporary folder of several machines may be the same: each of them makes room in it."""
    (tmp_path / "mounts").write_text(f"dev {tmp_path.resolve()} nfs4 rw 0 0\n")
    command = [sys.executable, "-c", KEEP_AND_LOSE, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, f"ended by {result.returncode}: {result.stderr}"
    assert int(result.stdout) == 500_000


def read_and_lose(root: Path, type_: str) -> subprocess.CompletedProcess[str]:
    schema = pa.schema([("n", pa.int64())])
    batch = pa.record_batch([list(range(50_000))], schema=schema)
    path = SegmentStore(str(root)).write("c", "a.arrow", [batch], schema).path
    (root / "mounts").write_text(f"dev {root.resolve()} {type_} rw 0 0\n")
    command = [sys.executable, "-c", READ_AND_LOSE, str(root), path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
