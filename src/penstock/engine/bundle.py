"""A bundle, inside a Spark task: read the share, run the function on the instances, write segments, report.

Rows never leave Arrow here: the query itself carries one descriptor in and one report out per task.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from penstock.channels.keys import grouped_schema, sort_by_group
from penstock.channels.layout import Channel
from penstock.channels.records import NewSegment
from penstock.channels.segments import segment_name
from penstock.engine.failures import failure
from penstock.engine.manifest import BundleReport, sums
from penstock.engine.program import PackedProgram, Portion, Program
from penstock.engine.readers import RowReader
from penstock.engine.splitting import Descriptor, Piece
from penstock.errors import PenstockError
from penstock.topology.arrow_function import outputs_of_call
from penstock.topology.definition import DEAD_LETTER, DEAD_LETTER_SCHEMA, MAIN_OUTPUT, OnError

REPORT_SCHEMA = pa.schema([("report", pa.binary())])
#: Rows of a by-key channel are sorted by group in batches of at most this many: a reader that stops in the middle of
#: a segment then still leaves work for every group.
GROUP_BATCH_ROWS = 16_384
#: Rows that Spark handed to a bundle are as old as their batch: the property under which the driver says how old.
BORN_PROPERTY = "penstock.born"
BAD_ROW_TEXT = 2_000


def run(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The Arrow path: descriptors in, reports out."""
    prepare_worker()
    program = packed.unpack()
    for batch in batches:
        for descriptor in batch.column(0):
            yield _as_batch(_Bundle(program, Descriptor.parse(descriptor.as_py())).run())


def read(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The DataFrame path's first half: descriptors in, rows out, for Spark SQL."""
    prepare_worker()
    program = packed.unpack()
    reader = RowReader(program.store)
    for batch in batches:
        for descriptor in batch.column(0):
            yield from reader.rows(Descriptor.parse(descriptor.as_py()))


def write(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The DataFrame path's second half: rows in, reports out."""
    prepare_worker()
    program = packed.unpack()
    started = time.perf_counter()
    collected = list(batches)
    _, partition = _task()
    share = Descriptor(slot=f"task/{partition}", instances=1, pieces=(), load=None)
    bundle = _Bundle(program, share, started)
    bundle.take_rows(collected)
    yield _as_batch(bundle.report())


def warm(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Nothing, but in a worker process that is there afterwards; says on which executor."""
    prepare_worker()
    for batch in batches:
        yield pa.record_batch([pa.array([(executor_id() or "").encode()] * batch.num_rows, pa.binary())], names=["x"])


def _as_batch(report: BundleReport) -> pa.RecordBatch:
    return pa.record_batch([pa.array([report.as_json()], pa.binary())], schema=REPORT_SCHEMA)


@functools.cache
def prepare_worker() -> None:
    """Once per worker process: PySpark collects garbage after every task, which takes tens of milliseconds with pandas
    and pyarrow loaded. What is loaded now stays anyway, so it is taken out of the collector's sight."""
    gc.collect()
    gc.freeze()


def executor_id() -> str | None:
    """The executor this worker belongs to; None where there is none, or it cannot be known."""
    executor = _executor()
    return executor[0] if executor else None


@functools.cache
def _executor() -> tuple[str, int] | None:
    """The executor's id and process. Spark does not tell its Python workers, but the executor's command line says it,
    two generations up (executor, daemon, worker); None where there is no such thing to read."""
    pid = os.getpid()
    for _ in range(4):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            return None
        if b"--executor-id" in arguments:
            return arguments[arguments.index(b"--executor-id") + 1].decode(), pid
        pid = int(parent)
    return None


def resident_bytes(pid: int) -> int | None:
    """The resident memory of a process now (getrusage knows only the most there ever was); None where there is no
    /proc to say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return None


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="instance")


@functools.cache
def _host() -> str:
    return os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()


def _task() -> tuple[int, int]:
    """(batch, partition) of the running Spark task."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a bundle runs only inside a Spark task")
    return int(context.getLocalProperty("streaming.sql.batchId") or 0), context.partitionId()


@dataclass
class _Instance:
    """What one instance did: its outputs in order, and what they cost."""

    outputs: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    bad: list[tuple[str, str]] = field(default_factory=list)
    rows_in: int = 0
    bytes_in: int = 0
    #: Rows by channel, and bytes by the slot that wrote them.
    rows_by_channel: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, int] = field(default_factory=dict)
    busy: float = 0.0
    cpu: float = 0.0

    def count(self, piece: Piece | None, rows: int, size: int) -> None:
        self.rows_in += rows
        self.bytes_in += size
        if piece is not None:
            channel, producer = piece.channel, piece.producer_slot
            self.rows_by_channel[channel] = self.rows_by_channel.get(channel, 0) + rows
            self.traffic[producer] = self.traffic.get(producer, 0) + size


class _Bundle:
    """One share of one micro-batch, from reading it to the report."""

    def __init__(self, program: Program, descriptor: Descriptor, started: float | None = None) -> None:
        self.program = program
        self.descriptor = descriptor
        self.started = started if started is not None else time.perf_counter()
        self.instances: list[_Instance] = []
        self.born = (0.0, 0.0)
        self.by_spark_sql = False

    def run(self) -> BundleReport:
        reader = self.program.reader
        if reader is None:
            raise RuntimeError(f"{self.program.operator} has nothing to read")
        self.born = reader.born(self.descriptor)
        self.instances = [_Instance() for _ in range(self.descriptor.instances)]
        keep = self._keep_bad_row(self.instances[0]) if self.program.on_error is not OnError.FAIL else None
        try:
            work = list(zip(self.instances, reader.read(self.descriptor, keep), strict=True))
            if len(work) == 1:
                self._work(*work[0])
            else:
                list(_threads(len(work)).map(lambda one: self._work(*one), work))
        except PenstockError as error:
            raise failure(self.program, error) from error
        return self.report()

    def take_rows(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Rows that Spark SQL has made already; only where they go is left to do."""
        instance = _Instance()
        for batch in batches:
            for output, part in _by_output(batch, self.program):
                instance.outputs.setdefault(output, []).append(part)
        self.instances = [instance]
        self.by_spark_sql = True
        context = TaskContext.get()
        born = context.getLocalProperty(BORN_PROPERTY) if context else None
        self.born = tuple(json.loads(born)) if born else (0.0, 0.0)

    def _work(self, instance: _Instance, portions: Iterator[Portion]) -> None:
        for piece, batch in portions:
            instance.count(piece, batch.num_rows, batch.nbytes)
            began, cpu = time.perf_counter(), time.thread_time()
            for output, part in self._call(instance, batch):
                if part.num_rows:
                    instance.outputs.setdefault(output, []).append(part)
            instance.busy += time.perf_counter() - began
            instance.cpu += time.thread_time() - cpu

    def _call(self, instance: _Instance, batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        """The function's outputs for a batch. Where bad rows may go elsewhere, a batch that fails is halved until they
        stand alone; nothing of a failed call is kept, so no row comes out twice."""
        program = self.program
        if program.function is None:
            return [(MAIN_OUTPUT, batch)]
        try:
            result = program.function(batch)
            if not program.outputs:  # a sink's own function: rows end here
                return [(MAIN_OUTPUT, batch)]
            return list(outputs_of_call(result, program.outputs))
        except PenstockError:
            raise
        except Exception as error:
            if program.on_error is OnError.FAIL:
                raise failure(program, error) from error
            if batch.num_rows == 1:
                instance.bad.append((f"{type(error).__name__}: {error}", _row_text(batch)))
                return []
            half = batch.num_rows // 2
            return self._call(instance, batch.slice(0, half)) + self._call(instance, batch.slice(half))

    def _keep_bad_row(self, instance: _Instance) -> Any:
        def keep(row: str, error: str) -> None:
            instance.bad.append((error, row[:BAD_ROW_TEXT]))

        return keep

    def report(self) -> BundleReport:
        batch, partition = _task()
        outputs = self._outputs()
        born_from, born_to = self.born
        descriptor, executor = self.descriptor, _executor()
        bad = [bad for instance in self.instances for bad in instance.bad]
        staged: tuple[tuple[str, str], ...] = ()
        if self.program.file_writer is not None and outputs.get(MAIN_OUTPUT):
            name = f"part-{batch:010d}-{partition:05d}"
            staged = (self.program.file_writer.write(outputs[MAIN_OUTPUT], name),)
        segments = tuple(self._segments(outputs, batch, partition))
        return BundleReport(
            slot=descriptor.slot,
            instances=descriptor.instances,
            partition=partition,
            executor=executor[0] if executor else None,
            host=_host(),
            pid=os.getpid(),
            rows_in=sum(instance.rows_in for instance in self.instances),
            bytes_in=sum(instance.bytes_in for instance in self.instances),
            rows_out={output: sum(part.num_rows for part in parts) for output, parts in outputs.items()},
            busy=max(instance.busy for instance in self.instances),
            busy_total=sum(instance.busy for instance in self.instances),
            cpu=sum(instance.cpu for instance in self.instances),
            seconds=time.perf_counter() - self.started,
            born_from=born_from,
            born_to=born_to,
            segments=segments,
            staged=staged,
            bad_rows=len(bad),
            bad_example=f"{bad[0][0]}: {bad[0][1]}"[:500] if bad else "",
            traffic=sums(instance.traffic for instance in self.instances),
            rows_by_channel=sums(instance.rows_by_channel for instance in self.instances),
            by_spark_sql=self.by_spark_sql,
            memory=resident_bytes(os.getpid()),
            executor_memory=resident_bytes(executor[1]) if executor else None,
        )

    def _outputs(self) -> dict[str, list[pa.RecordBatch]]:
        """What all instances emitted, by output, in the order of the instances."""
        outputs: dict[str, list[pa.RecordBatch]] = {}
        for instance in self.instances:
            for output, parts in instance.outputs.items():
                outputs.setdefault(output, []).extend(parts)
            if instance.bad and self.program.on_error is OnError.DEAD_LETTER:
                outputs.setdefault(DEAD_LETTER, []).append(_dead_letters(self.program.operator, instance.bad))
        return outputs

    def _segments(self, outputs: dict[str, list[pa.RecordBatch]], batch: int, partition: int) -> Iterator[NewSegment]:
        for output, parts in outputs.items():
            for channel in self.program.channels.get(output, ()):
                rows, schema = _in_layout(parts, channel)
                if not any(part.num_rows for part in rows):
                    continue
                written = self.program.store.write(channel.name, segment_name(batch, partition), rows, schema)
                yield NewSegment(
                    channel.name, written.path, written.rows, written.bytes, self.descriptor.slot, *self.born
                )


def _in_layout(parts: Sequence[pa.RecordBatch], channel: Channel) -> tuple[list[pa.RecordBatch], pa.Schema]:
    if not channel.key:
        return list(parts), channel.schema
    table = pa.Table.from_batches(parts, channel.schema).combine_chunks()
    batches = table.to_batches(max_chunksize=GROUP_BATCH_ROWS)
    return [sort_by_group(batch, channel.key, channel.groups) for batch in batches], grouped_schema(channel.schema)


def _by_output(batch: pa.RecordBatch, program: Program) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of Spark SQL, in the declared schema, by the output that their column names."""
    if program.output_column is None:
        [output] = program.outputs or (MAIN_OUTPUT,)
        yield output, batch.cast(program.outputs[output]) if program.outputs else batch
        return
    index = batch.schema.get_field_index(program.output_column)
    names = batch.column(index)
    rows = batch.remove_column(index)
    for name in names.unique().to_pylist():
        if name not in program.outputs:
            known = ", ".join(program.outputs)
            problem = PenstockError(
                "BAD_FUNCTION", f'a row names the output "{name}".', f"The operator declares: {known}."
            )
            raise failure(program, problem)
        yield name, rows.filter(pa.compute.equal(names, name)).cast(program.outputs[name])


def _row_text(batch: pa.RecordBatch) -> str:
    return json.dumps(batch.to_pylist()[0], default=str)[:BAD_ROW_TEXT]


def _dead_letters(operator: str, bad: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    errors, rows = zip(*bad, strict=True)
    return pa.record_batch([[operator] * len(bad), list(errors), list(rows)], schema=DEAD_LETTER_SCHEMA)
