"""Segments: immutable Arrow files that hold the rows of a channel. Any process may write and read them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from penstock.channels.kept_pieces import make_room
from penstock.channels.keys import in_group_order, is_grouped
from penstock.channels.mounts import is_local
from penstock.channels.origins import Origins
from penstock.errors import PenstockError

MAX_BATCH_ROWS = 65_536
#: Keeps record batches of wide rows far below the 2 GiB that a string column can hold.
MAX_BATCH_BYTES = 64 << 20
#: Where rows differ much in size: the most bytes of any record batch of more than one row.
LARGEST_BATCH_BYTES = 1 << 30
#: After so many segments that a process keeps copies of, it sees to it that there are not too many.
ROOM_EVERY = 32
_KEPT = itertools.count()
_BATCH_ROWS = b"penstock.batch_rows"
_URI = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_NAME = re.compile(r"(\d{10,})-\d{5,}-[0-9a-f]{32}\.arrow")


@dataclass(frozen=True)
class SegmentFile:
    """A written segment; the path is relative to the store's root."""

    path: str
    rows: int
    #: As they are read: of a compressed segment more than the file has.
    bytes: int


def segment_name(batch: int, partition: int) -> str:
    """A name that nobody has used: an attempt of a task that is repeated never meets the file of the one before."""
    return f"{batch:010d}-{partition:05d}-{uuid4().hex}.arrow"


def batch_of_name(path: str) -> int | None:
    """The batch that a file was written for; None if it is not named like a segment."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match else None


class SegmentStore:
    """A folder for each channel below a root, which is a path or a URI that pyarrow understands (file:, hdfs:, s3:,
    ...).

    A store is cheap to make and to pickle. With `sync` a file is on the disk, not only in the operating system's
    memory, before `write` returns: needed to survive a power cut, together with a catalog that is opened with
    synchronous=FULL."""

    def __init__(
        self,
        root: str,
        compression: str | None = None,
        *,
        filesystem: fs.FileSystem | None = None,
        max_batch_rows: int = MAX_BATCH_ROWS,
        sync: bool = False,
        origins: Origins | None = None,
    ) -> None:
        is_path = filesystem is None and not _URI.match(root)
        self.root = str(Path(root).absolute()) if is_path else root
        self.compression = compression
        self.max_batch_rows = max_batch_rows
        self.sync = sync
        #: Where readers on other machines get segments from; None: from this store.
        self.origins = origins
        self._given = filesystem
        self._opened: tuple[fs.FileSystem, str] | None = (filesystem, root.rstrip("/")) if filesystem else None

    def __getstate__(self) -> dict[str, Any]:
        # The other process opens the file system with its own settings and credentials.
        return self.__dict__ | ({} if self._given else {"_opened": None})

    def write(self, channel: str, name: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> SegmentFile:
        """Write one segment of at least one row.

        The file appears under its final name while it is still being written. No rename is needed, which object
        stores do not have: names are unique and only names that were published, hence complete, are ever read."""
        filesystem, root = self._filesystem()
        table = pa.Table.from_batches(batches, schema).unify_dictionaries()
        if table.num_rows == 0:
            raise ValueError(f"{channel}/{name}: a segment needs at least one row")
        path = f"{channel}/{name}"
        options = pa.ipc.IpcWriteOptions(compression=self.compression)
        batch_rows = _batch_rows(table, self.max_batch_rows)
        written_schema = schema.with_metadata({**(schema.metadata or {}), _BATCH_ROWS: str(batch_rows).encode()})
        try:
            with _open_output(filesystem, f"{root}/{path}") as sink:
                with pa.ipc.new_file(sink, written_schema, options=options) as writer:
                    for batch in _coalesced(table, batch_rows):
                        writer.write_batch(batch)
                # What it takes in memory: bounds on batches and backlogs are about that, however small it is on the
                # disk.
                size = table.nbytes if self.compression else sink.tell()
        except BaseException:
            # What there is of it takes room on a disk that may be full, and nobody would sweep it soon.
            with suppress(OSError):
                self.delete([path])
            raise
        if self.sync and isinstance(filesystem, fs.LocalFileSystem):
            written = Path(root) / path
            sync(written, written.parent)
        if self.origins is not None and not self._is_near(channel):
            self._keep(self.origins, channel, name, batches, schema)
        return SegmentFile(path, table.num_rows, size)

    def _keep(
        self, origins: Origins, channel: str, name: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema
    ) -> None:
        """Keep a copy on this machine for readers on others: the store is far from all of them."""
        # A full disk here is no reason to fail: the store has the segment.
        with suppress(OSError, pa.ArrowException):
            kept = SegmentStore(str(origins.folder), max_batch_rows=self.max_batch_rows)
            kept.write(channel, name, batches, schema)
            if next(_KEPT) % ROOM_EVERY == 0:
                make_room(origins.folder, origins.kept_bytes)

    @property
    def is_near(self) -> bool:
        """Whether the store is on a disk of this computer."""
        return self._is_near("")

    def _is_near(self, channel: str) -> bool:
        """Whether a channel is on a disk of this computer."""
        filesystem, root = self._filesystem()
        return isinstance(filesystem, fs.LocalFileSystem) and is_local(f"{root}/{channel}")

    def read(self, path: str, start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows [start, stop) of a segment, counted from its own first row; all of it if nothing else is said.

        On a disk of this computer the batches lie over the mapped file: nothing is copied, and a file that is deleted
        meanwhile stays readable. From anywhere else (NFS is a path as well) a batch is copied when it is read."""
        try:
            reader = self._reader(path)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.root, path, str(error)) from error
        metadata = dict(reader.schema.metadata or {})
        batch_rows = int(metadata.pop(_BATCH_ROWS, 0))
        if batch_rows < 1:
            raise _unreadable(self.root, path, "Penstock did not write this file")
        # All record batches but the last have the same number of rows, so those before `start` are never read.
        index, first = start // batch_rows, start // batch_rows * batch_rows
        while index < reader.num_record_batches and (stop is None or first < stop):
            try:
                batch = reader.get_batch(index)
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(self.root, path, str(error)) from error
            skip = max(start - first, 0)
            keep = batch.num_rows if stop is None else min(stop - first, batch.num_rows)
            index, first = index + 1, first + batch.num_rows
            if keep > skip:
                yield batch.slice(skip, keep - skip).replace_schema_metadata(metadata or None)
        if stop is not None and first < stop:
            raise _unreadable(self.root, path, f"the file ends before row {stop}")

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is missing is fine, since another attempt may have been cut off half way."""
        filesystem, root = self._filesystem()
        for path in paths:
            try:
                filesystem.delete_file(f"{root}/{path}")
            except FileNotFoundError:  # it was deleted before: a sweep that was cut off begins again
                continue

    def list(self, channel: str) -> list[str]:
        """The paths of all files of a channel, published or not."""
        filesystem, root = self._filesystem()
        try:
            found = filesystem.get_file_info(fs.FileSelector(f"{root}/{channel}"))
        except FileNotFoundError:
            # Nothing was written yet. `allow_not_found` would still fail if the folder is being made just now.
            return []
        return sorted(f"{channel}/{info.base_name}" for info in found if info.type == fs.FileType.File)

    def has(self, path: str) -> bool:
        filesystem, root = self._filesystem()
        return bool(filesystem.get_file_info(f"{root}/{path}").type == fs.FileType.File)

    def channels(self) -> tuple[str, ...]:
        """The channels that have a folder here, whether anybody knows them or not."""
        filesystem, root = self._filesystem()
        found = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
        return tuple(sorted(info.base_name for info in found if info.type == fs.FileType.Directory))

    def drop(self, channel: str) -> None:
        """Delete all segments of a channel, and its folder unless there is something else in it."""
        filesystem, root = self._filesystem()
        found = self.list(channel)
        segments = [path for path in found if batch_of_name(path) is not None]
        self.delete(segments)
        if segments == found:
            with suppress(FileNotFoundError):  # nothing was ever written, or it was deleted before
                filesystem.delete_dir(f"{root}/{channel}")

    def _reader(self, path: str) -> pa.ipc.RecordBatchFileReader:
        filesystem, root = self._filesystem()
        if self._is_near(path.rpartition("/")[0]):
            return pa.ipc.open_file(pa.memory_map(f"{root}/{path}"))
        return pa.ipc.open_file(filesystem.open_input_file(f"{root}/{path}"))

    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        if self._opened is None:
            self._opened = open_filesystem(self.root)
        return self._opened


def absolute(location: str) -> str:
    """A path from the root on; a URI as it is."""
    return location if _URI.match(location) else str(Path(location).absolute())


def below(location: str, name: str) -> str:
    """A folder in a location, which is a path or a URI: what a URI asks for behind a ? stays at its end."""
    folder, mark, query = location.partition("?") if _URI.match(location) else (location, "", "")
    return f"{folder.rstrip('/')}/{name}{mark}{query}"


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it, without a slash at the end."""
    try:
        filesystem, path = fs.FileSystem.from_uri(absolute(uri))
    except (OSError, pa.ArrowException) as error:
        raise PenstockError(
            "BAD_SETTING",
            f"The folder {uri} cannot be used: {error}.",
            "Give a path, or a URI of a file system that pyarrow can open here (file:, hdfs:, s3:, gs:).",
        ) from error  # it says whether the file system is away, or the URI is wrong
    return filesystem, path.rstrip("/")


def _open_output(filesystem: fs.FileSystem, path: str) -> pa.NativeFile:
    # Folders are made when one turns out to be missing: once a channel, where file systems have folders at all.
    try:
        return filesystem.open_output_stream(path)
    except FileNotFoundError:
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        return filesystem.open_output_stream(path)


def _batch_rows(table: pa.Table, max_rows: int) -> int:
    affordable: int = table.num_rows * MAX_BATCH_BYTES // max(table.nbytes, 1)
    rows = max(1, min(max_rows, affordable))
    while rows > 1 and table.nbytes > LARGEST_BATCH_BYTES and _largest(table, rows) > LARGEST_BATCH_BYTES:
        rows //= 2
    return rows


def _largest(table: pa.Table, batch_rows: int) -> int:
    """The bytes of the largest record batch, if all have so many rows."""
    return max(int(table.slice(first, batch_rows).nbytes) for first in range(0, table.num_rows, batch_rows))


def _coalesced(table: pa.Table, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Record batches of exactly `batch_rows` rows, the last one of what is left; sorted if they are split by key."""
    grouped = is_grouped(table.schema)
    for first in range(0, table.num_rows, batch_rows):
        # Only batches that have to be joined are copied; a slice of a single one is not.
        [batch] = table.slice(first, batch_rows).combine_chunks().to_batches()
        yield in_group_order(batch) if grouped else batch


def sync(*paths: Path) -> None:
    """Have the disk itself hold these files and folders, so that they survive a power cut."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _unreadable(root: str, path: str, why: str) -> PenstockError:
    return PenstockError(
        "SEGMENT_UNREADABLE",
        f"The segment {path} below {root} cannot be read: {why}.",
        "Was the folder moved, cleaned up or cut off by a full disk? Restore it, or start with a new state folder.",
    )
