"""A sink that writes Parquet files to a folder. Bundles write them, and they appear when their batch is published."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from penstock.channels.segments import absolute, open_filesystem, sync
from penstock.errors import Location, PenstockError
from penstock.kinds import SinkKind, SinkPlace
from penstock.sinks.mistakes import bad_sink

#: Readers of a folder skip what starts with an underscore: Spark, Hive, pyarrow and pandas agree on that.
STAGING = "_staging"
#: What a Parquet sink can do about a folder that has files of others.
EXISTING = ("refuse", "append")


def parquet(path: str | Path, existing: str = "refuse") -> ParquetSink:
    """A sink that writes Parquet files to a folder. If a run on a new state finds other files in the folder, Penstock
    refuses it, because nobody could tell their rows apart. With `existing="append"` the run adds to these files. A run
    that goes on from its state adds to the folder in both cases."""
    if not fspath(path):
        raise bad_sink("the sink has an empty path.", "Give a folder.")
    if existing not in EXISTING:
        raise bad_sink(f"existing of sinks.parquet is {existing!r}.", f"Set it to {' or '.join(map(repr, EXISTING))}.")
    return ParquetSink(fspath(path), existing)


@dataclass(frozen=True)
class ParquetSink(SinkKind):
    path: str
    #: What to do about a folder that has files of others: "refuse", or "append" to them.
    existing: str = "refuse"

    kind = "parquet"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "path": self.path, "existing": self.existing}

    @property
    def folder(self) -> str:
        return absolute(self.path)

    def check(self, sink: str, identity: str, goes_on: bool, where: Location | None) -> None:
        if self.existing == "refuse" and not goes_on:
            check_folder(sink, self.path, identity, where)

    def check_not_ahead(self, sink: str, mark: str, batches: Mapping[str, int], where: Location | None) -> None:
        filesystem, root = open_filesystem(self.path)
        file = re.compile(rf"part-(\d+)-\d+(?:\.\d+)?-{re.escape(mark)}(\..+)?\.parquet")
        ahead = []
        for one in filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True)):
            found = file.fullmatch(one.base_name)
            if found and int(found[1]) > batches.get(found[2] or "", int(found[1])):
                ahead.append(one.base_name)
        if ahead:
            raise PenstockError(
                "STATE_DOES_NOT_FIT",
                f'the sink "{sink}" has written {min(ahead)} to {self.path}'
                f"{f' and {len(ahead) - 1:,} more files' if len(ahead) > 1 else ''}, of which this state knows "
                "nothing: it is an older copy of the state that wrote them, or a power cut has taken its last batches.",
                "Go on with the newest copy. If there is none, move these files away: their rows are written again. Of "
                "power cuts see the setting catalog_durability.",
                where,
            )

    def file_writer(self, place: SinkPlace) -> ParquetWriter:
        return ParquetWriter(absolute(self.path), place.mark, place.by, place.durable)


@dataclass(frozen=True)
class ParquetWriter:
    """Runs on the executors. A file is staged first, so that no reader of the folder ever sees a part of a batch."""

    path: str
    #: In the name of every file. A folder may hold files of several sinks and of earlier runs, which all count their
    #: batches from 0, and none may replace another's; a batch that is replayed replaces its own.
    mark: str
    by: str = ""
    #: Whether a file must be on the disk, and not only in the operating system's memory, before it counts as staged.
    durable: bool = False

    def write(self, batches: Sequence[pa.RecordBatch], name: str) -> tuple[str, str]:
        filesystem, root = open_filesystem(self.path)
        staged = f"{root}/{STAGING}/{name}-{self.mark}{self.by}-{uuid4().hex}.parquet"
        filesystem.create_dir(f"{root}/{STAGING}", recursive=True)
        pq.write_table(pa.Table.from_batches(batches), staged, filesystem=filesystem)
        if self.durable and isinstance(filesystem, pafs.LocalFileSystem):
            sync(Path(staged), Path(staged).parent)
        scheme = self.path if ":" in self.path else ""
        return f"{scheme}|{staged}", f"{root}/{name}-{self.mark}{self.by}.parquet"

    def clear(self, before: int | None = None) -> None:
        """Delete what attempts at a batch have staged that were never published: all of it before anything runs, and
        while this writer's query runs only what was staged for batches before one of its own."""
        filesystem, root = open_filesystem(self.path)
        staging = pafs.FileSelector(f"{root}/{STAGING}", allow_not_found=True)
        mark = _of_any_beginning(self.mark) if before is None else re.escape(self.mark)
        by = r"(\..*)?" if before is None else re.escape(self.by)
        for info in filesystem.get_file_info(staging):
            staged = re.fullmatch(rf"part-(\d+)-\d+(\.\d+)?-{mark}{by}", info.base_name.rpartition("-")[0])
            if staged is not None and (before is None or int(staged[1]) < before):
                filesystem.delete_file(info.path)


def check_folder(sink: str, path: str, identity: str, where: Location | None) -> None:
    """Refuse a folder that holds anything but what runs on the same state have written."""
    filesystem, root = open_filesystem(path)
    own = re.compile(rf"part-\d+-\d+(\.\d+)?-{identity}(x\d+)?-.*\.parquet")
    found = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    foreign = sorted(
        one.base_name for one in found if not one.base_name.startswith(("_", ".")) and not own.fullmatch(one.base_name)
    )
    if foreign:
        raise PenstockError(
            "SINK_NOT_EMPTY",
            f'the sink "{sink}" writes to {path}, which has files that this state did not write ({foreign[0]}'
            f"{f' and {len(foreign) - 1:,} more' if len(foreign) > 1 else ''}).",
            'Choose another folder, empty this one, add to its files with sinks.parquet(path, existing="append"), or '
            "go on with the --state of the run that wrote them.",
            where,
        )


def _of_any_beginning(mark: str) -> str:
    """A pattern of the marks that a sink has had, however often it began anew."""
    identity, dash, sink = mark.partition("-")
    return rf"{re.escape(identity.partition('x')[0])}(x\d+)?{re.escape(dash + sink)}"
