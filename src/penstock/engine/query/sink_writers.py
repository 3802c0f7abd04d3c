"""How sinks write. Parquet is written by the bundles themselves and appears when its batch is published; JDBC, the
console and the user's own function get each micro-batch as a DataFrame."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.channels.catalog import Catalog
from penstock.channels.segments import absolute, open_filesystem
from penstock.engine.message.program import FileWriter
from penstock.engine.spark.internals import java_of
from penstock.errors import PenstockError
from penstock.monitor.report import BatchReport
from penstock.sinks import ConsoleSink, FunctionSink, JdbcSink, ParquetSink
from penstock.sinks.specs import without_secrets
from penstock.topology.definition import Sink, SinkSpec

#: Readers of a folder skip what starts with an underscore: Spark, Hive, pyarrow and pandas agree on that.
STAGING = "_staging"


class BatchWriter(Protocol):
    def write(self, frame: DataFrame, batch: int) -> None: ...


def mark_of(identity: str, sink: str, before: int) -> str:
    """What a sink writes into a place that others write to as well has this mark: the identity of its state, and how
    many batches the sink may have had before it began anew and counted them from 0 again."""
    return f"{identity}{f'x{before}' if before else ''}-{sink}"


def _of_any_beginning(mark: str) -> str:
    """A pattern of the marks that a sink has had, however often it began anew."""
    identity, dash, sink = mark.partition("-")
    return rf"{re.escape(identity.partition('x')[0])}(x\d+)?{re.escape(dash + sink)}"


def check_folder(sink: Sink, spec: ParquetSink, identity: str) -> None:
    """Refuse a folder that holds anything but what runs on the same state have written."""
    filesystem, root = open_filesystem(spec.path)
    own = re.compile(rf"part-\d+-\d+(\.\d+)?-{identity}(x\d+)?-.*\.parquet")
    found = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    foreign = sorted(
        one.base_name for one in found if not one.base_name.startswith(("_", ".")) and not own.fullmatch(one.base_name)
    )
    if foreign:
        raise PenstockError(
            "SINK_NOT_EMPTY",
            f'the sink "{sink.name}" writes to {spec.path}, which holds what this state did not write ({foreign[0]}'
            f"{f' and {len(foreign) - 1:,} more' if len(foreign) > 1 else ''}).",
            'Give another folder, empty this one, add to it with sinks.parquet(path, existing="append"), or go on with '
            "the --state of the run that wrote it.",
            sink.where,
        )


def file_writer(spec: SinkSpec, mark: str, by: str = "") -> FileWriter | None:
    """`by` is added to the mark where another query than the sink's own writes."""
    return ParquetWriter(absolute(spec.path), mark, by) if isinstance(spec, ParquetSink) else None


def batch_writer(spec: SinkSpec, mark: str = "", before: int = 0) -> BatchWriter | None:
    """`before` says how many batches the sink may have had before it began anew."""
    if isinstance(spec, FunctionSink):
        return FunctionWriter(spec, before)
    if isinstance(spec, ConsoleSink):
        return ConsoleWriter(spec)
    if isinstance(spec, JdbcSink):
        return JdbcWriter(spec, mark)
    return None


@dataclass(frozen=True)
class ParquetWriter:
    """Runs on the executors. A file is staged first, so that no reader of the folder ever sees a part of a batch."""

    path: str
    #: In the name of every file. A folder may hold files of several sinks and of earlier runs, which all count their
    #: batches from 0, and none may replace another's; a batch that is replayed replaces its own.
    mark: str
    by: str = ""

    def write(self, batches: Sequence[pa.RecordBatch], name: str) -> tuple[str, str]:
        filesystem, root = open_filesystem(self.path)
        staged = f"{root}/{STAGING}/{name}-{self.mark}{self.by}-{uuid4().hex}.parquet"
        filesystem.create_dir(f"{root}/{STAGING}", recursive=True)
        pq.write_table(pa.Table.from_batches(batches), staged, filesystem=filesystem)
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


def check_staged(report: BatchReport) -> None:
    """Before a batch is published: every file that its bundles have staged is there for the driver too, which is going
    to move it. A batch whose files it cannot see must not count as written."""
    for filesystem, staged, _ in _files(report):
        if not _exists(filesystem, staged):
            raise PenstockError(
                "SINK_NOT_SHARED",
                f'a bundle has written {staged}, but the driver of "{report.operator}" cannot see that file.',
                "Driver and executors must share the folder of a Parquet sink: give a path on a file system that all "
                "machines have mounted, or a URI (hdfs:, s3:, gs:). The batch is not published: started again with "
                "the same --state, the topology writes its rows anew.",
            )


def finish_published(operator: str, batch: int, catalog: Catalog) -> None:
    """The same for a batch that was published before: its files may have been left as they were, when the disk had no
    room for a name in that moment."""
    for one in catalog.manifests(operator, batch - 1):
        if one.batch == batch:
            finish_files(BatchReport.parse(one.manifest), catalog)


def finish_files(report: BatchReport, catalog: Catalog) -> None:
    """Give the staged files of a published batch their final names. Done again after a crash, it changes nothing.

    The catalog is told, so that nobody misses a file later that was there and that others have taken away since."""
    files, key = list(_files(report)), f"finished/{report.operator}"
    was_finished = bool(files) and report.batch <= int(catalog.get_meta(key) or -1)
    for filesystem, staged, final in files:
        # Asked first: S3 has no error of its own for a file that is not there.
        if _exists(filesystem, staged):
            filesystem.move(staged, final)
        elif not was_finished and not _exists(filesystem, final):
            raise PenstockError(
                "SINK_FILE_LOST",
                f'rows that batch {report.batch} of "{report.operator}" has written are lost: the file is neither at '
                f"{staged}, where a bundle has staged it, nor at {final}, where it belongs.",
                f"Restore the file to one of the two places. If you can do without its rows, put an empty file at "
                f"{final}, start again, and delete that file then.",
            )
    if files and not was_finished:
        catalog.set_meta(key, str(report.batch))


def _files(report: BatchReport) -> Iterator[tuple[pafs.FileSystem, str, str]]:
    """(file system, staged path, final path) of every file of a batch."""
    for bundle in report.bundles:
        for marked, final in bundle.staged:
            uri, _, staged = marked.partition("|")
            yield open_filesystem(uri)[0] if uri else pafs.LocalFileSystem(), staged, final


def _exists(filesystem: pafs.FileSystem, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type != pafs.FileType.NotFound)


@dataclass(frozen=True)
class FunctionWriter:
    spec: FunctionSink
    #: A number that the function has seen never comes again for other rows, also when the sink began anew.
    before: int = 0

    def write(self, frame: DataFrame, batch: int) -> None:
        self.spec.function(frame, self.before + batch)


@dataclass(frozen=True)
class ConsoleWriter:
    spec: ConsoleSink

    def write(self, frame: DataFrame, batch: int) -> None:
        if batch % self.spec.every == 0:
            frame.show(self.spec.rows, truncate=False)


@dataclass(frozen=True)
class JdbcWriter:
    """Appends. With a batch column, what an earlier attempt at the same batch wrote is deleted first."""

    spec: JdbcSink
    #: No other sink and no other state has it: they all count their batches from 0, and none may delete another's.
    mark: str = ""

    def number(self, batch: int) -> int:
        """What the batch column holds: 31 bits of the mark, and the batch."""
        return ((zlib.crc32(self.mark.encode()) & 0x7FFFFFFF) << 32) + batch

    def write(self, frame: DataFrame, batch: int) -> None:
        spec = self.spec
        if spec.batch_column is not None:
            number = self.number(batch)
            self._forget(frame, number)
            frame = frame.withColumn(spec.batch_column, F.lit(number).cast("long"))
        try:
            frame.write.jdbc(spec.url, spec.table, mode="append", properties=dict(spec.properties))
        except Exception as error:
            raise self._problem(error) from error

    def _forget(self, frame: DataFrame, number: int) -> None:
        jvm = java_of(frame.sparkSession)
        properties = jvm.java.util.Properties()
        for key, value in self.spec.properties.items():
            properties.setProperty(key, value)
        try:
            if "driver" in self.spec.properties:
                jvm.java.lang.Class.forName(self.spec.properties["driver"])
            connection = jvm.java.sql.DriverManager.getConnection(self.spec.url, properties)
        except Exception as error:
            raise self._problem(error) from error
        try:
            metadata = connection.getMetaData()
            tables = metadata.getTables(None, None, None, None)
            known = set()
            while tables.next():
                known.add(str(tables.getString("TABLE_NAME")).lower())
            if self.spec.table.rpartition(".")[2].strip('"`').lower() in known:
                # Spark quotes the columns of a table that it creates; databases differ in what they quote with.
                quote = str(metadata.getIdentifierQuoteString()).strip()
                column = f"{quote}{self.spec.batch_column}{quote}"
                statement = connection.prepareStatement(
                    f"DELETE FROM {self.spec.table} WHERE {column} = ?"  # noqa: S608 - the user's own table
                )
                statement.setLong(1, number)
                statement.executeUpdate()
        except Exception as error:
            raise self._problem(error) from error
        finally:
            connection.close()

    def _problem(self, error: Exception) -> PenstockError:
        # Drivers like to repeat the whole URL, password and all.
        text = str(error).replace(self.spec.url, without_secrets(self.spec.url))
        lines = [line for line in text.splitlines() if "Exception" in line] or text.splitlines() or ["no reason given"]
        return PenstockError(
            "BAD_SINK",
            f'the table "{self.spec.table}" cannot be written: {lines[0][:300]}.',
            "Is the database up, the driver's jar on Spark's class path, and the user allowed to write?",
        )
