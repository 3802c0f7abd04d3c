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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from penstock.channels.keys import grouped_schema, sort_by_group
from penstock.channels.layout import Channel
from penstock.channels.records import NewSegment
from penstock.channels.segments import MAX_BATCH_ROWS, segment_name
from penstock.engine.failures import failure
from penstock.engine.manifest import BundleReport, sums
from penstock.engine.program import PackedProgram, Portion, Program, Stage
from penstock.engine.readers import RowReader
from penstock.engine.splitting import Descriptor, Piece
from penstock.errors import PenstockError
from penstock.topology.arrow_function import outputs_of_call
from penstock.topology.definition import DEAD_LETTER, DEAD_LETTER_SCHEMA, MAIN_OUTPUT, OnError

REPORT_SCHEMA = pa.schema([("report", pa.binary())])
#: Rows of a by-key channel are sorted by group in batches of at most this many: a reader that stops in the middle of
#: a segment then still leaves work for every group.
GROUP_BATCH_ROWS = 16_384
#: A chain takes rows through all its functions in batches of this many, to stay in the processor's cache (see
#: docs/design/0011); calls of cheap functions still cost little.
CHAIN_BATCH_ROWS = 16_384
#: A stage that wants all rows, and whose function can fold parts of them, does so when it has this many.
FOLD_ROWS = 262_144
#: Batches of fewer rows are joined until they are as many.
SMALL_BATCH_ROWS = 4_096
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
    yield _as_batch(bundle.reports())


def warm(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Nothing, but in a worker process that is there afterwards; says on which executor."""
    prepare_worker()
    for batch in batches:
        yield pa.record_batch([pa.array([(executor_id() or "").encode()] * batch.num_rows, pa.binary())], names=["x"])


def _as_batch(reports: Sequence[BundleReport]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([one.as_json() for one in reports], pa.binary())], schema=REPORT_SCHEMA)


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
class _Work:
    """What one instance did in one stage: its outputs in order, and what they cost."""

    outputs: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    bad: list[tuple[str, str]] = field(default_factory=list)
    rows_in: int = 0
    bytes_in: int = 0
    #: Rows by channel, and bytes by the slot that wrote them.
    rows_by_channel: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, int] = field(default_factory=dict)
    #: Rows of a stage that wants them all at once.
    gathered: list[pa.RecordBatch] = field(default_factory=list)
    gathered_rows: int = 0
    #: What its function made of those before them, where it can go on from there.
    folded: list[pa.RecordBatch] = field(default_factory=list)
    #: Rows by output, those that the next stage of a chain got among them.
    rows_out: dict[str, int] = field(default_factory=dict)
    busy: float = 0.0
    cpu: float = 0.0

    def emit(self, output: str, part: pa.RecordBatch, keep: bool) -> None:
        self.rows_out[output] = self.rows_out.get(output, 0) + part.num_rows
        if keep:
            self.outputs.setdefault(output, []).append(part)

    def count(self, piece: Piece | None, rows: int, size: int) -> None:
        self.rows_in += rows
        self.bytes_in += size
        if piece is not None:
            channel, producer = piece.channel, piece.producer_slot
            self.rows_by_channel[channel] = self.rows_by_channel.get(channel, 0) + rows
            self.traffic[producer] = self.traffic.get(producer, 0) + size


class _Bundle:
    """One share of one micro-batch, from reading it to the reports: one of every operator in the chain."""

    def __init__(self, program: Program, descriptor: Descriptor, started: float | None = None) -> None:
        self.program = program
        self.descriptor = descriptor
        self.started = started if started is not None else time.perf_counter()
        #: By instance, what it did in each stage.
        self.instances: list[list[_Work]] = []
        self.born = (0.0, 0.0)
        self.by_spark_sql = False

    def run(self) -> list[BundleReport]:
        reader, first = self.program.reader, self.program.stages[0]
        if reader is None:
            raise RuntimeError(f"{first.operator} has nothing to read")
        self.born = reader.born(self.descriptor)
        self.instances = [[_Work() for _ in self.program.stages] for _ in range(self.descriptor.instances)]
        keep = self._keep_bad_row(self.instances[0][0]) if first.on_error is not OnError.FAIL else None
        try:
            work = list(zip(self.instances, reader.read(self.descriptor, keep), strict=True))
            if len(work) == 1:
                self._work(*work[0])
            else:
                list(_threads(len(work)).map(lambda one: self._work(*one), work))
        except PenstockError as error:
            raise failure(first, error) from error
        return self.reports()

    def take_rows(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Rows that Spark SQL has made already; only where they go is left to do."""
        work = _Work()
        for batch in batches:
            for output, part in _by_output(batch, self.program.stages[0]):
                work.emit(output, part, keep=True)
        self.instances = [[work]]
        self.by_spark_sql = True
        context = TaskContext.get()
        born = context.getLocalProperty(BORN_PROPERTY) if context else None
        self.born = tuple(json.loads(born)) if born else (0.0, 0.0)

    def _work(self, instance: list[_Work], portions: Iterator[Portion]) -> None:
        rows = CHAIN_BATCH_ROWS if len(self.program.stages) > 1 else MAX_BATCH_ROWS
        for batch in _in_handy_batches(self._counted(instance[0], portions), rows):
            self._stage(0, instance, batch)
        for index, work in enumerate(instance):
            stage = self.program.stages[index]
            if work.folded:
                _fold(stage, work)
                stage = replace(stage, function=getattr(stage.function, "fold", None))
                self._run_stage(index, instance, stage, pa.concat_batches(work.folded))
            elif work.gathered:
                self._run_stage(index, instance, stage, _joined(work.gathered))

    def _counted(self, work: _Work, portions: Iterator[Portion]) -> Iterator[pa.RecordBatch]:
        for piece, batch in portions:
            work.count(piece, batch.num_rows, batch.nbytes)
            yield batch

    def _stage(self, index: int, instance: list[_Work], batch: pa.RecordBatch) -> None:
        if self.program.stages[index].gathers:
            _gather(self.program.stages[index], instance[index], batch)
        else:
            self._run_stage(index, instance, self.program.stages[index], batch)

    def _run_stage(self, index: int, instance: list[_Work], stage: Stage, batch: pa.RecordBatch) -> None:
        """What one operator does with a batch, and then what those behind it in the chain do with what came out."""
        work = instance[index]
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            parts = _call(stage, work, batch)
        except PenstockError as error:
            raise failure(stage, error) from error
        work.busy += time.perf_counter() - began
        work.cpu += time.thread_time() - cpu
        for output, part in parts:
            if part.num_rows:
                work.emit(output, part, stage.keeps(output))
                if output == stage.passes_on:
                    instance[index + 1].count(None, part.num_rows, part.nbytes)
                    self._stage(index + 1, instance, part)

    def _keep_bad_row(self, work: _Work) -> Any:
        def keep(row: str, error: str) -> None:
            work.bad.append((error, row[:BAD_ROW_TEXT]))

        return keep

    def reports(self) -> list[BundleReport]:
        """Of every stage, in their order: what is written is written here."""
        batch, partition = _task()
        stages = [
            (stage, list(works))
            for stage, works in zip(self.program.stages, zip(*self.instances, strict=True), strict=True)
        ]
        written = [self._write(stage, works, batch, partition) for stage, works in stages]
        seconds = time.perf_counter() - self.started
        return [
            self._report(stage, works, partition, seconds, *files)
            for (stage, works), files in zip(stages, written, strict=True)
        ]

    def _write(self, stage: Stage, works: Sequence[_Work], batch: int, partition: int) -> _Written:
        outputs = _outputs(stage, works)
        staged: tuple[tuple[str, str], ...] = ()
        if stage.file_writer is not None and outputs.get(MAIN_OUTPUT):
            name = f"part-{batch:010d}-{partition:05d}"
            staged = (stage.file_writer.write(outputs[MAIN_OUTPUT], name),)
        return staged, tuple(self._segments(stage, outputs, batch, partition))

    def _report(
        self,
        stage: Stage,
        works: Sequence[_Work],
        partition: int,
        seconds: float,
        staged: tuple[tuple[str, str], ...],
        segments: tuple[NewSegment, ...],
    ) -> BundleReport:
        born_from, born_to = self.born
        descriptor, executor = self.descriptor, _executor()
        bad = [bad for work in works for bad in work.bad]
        return BundleReport(
            operator=stage.operator,
            slot=descriptor.slot,
            instances=descriptor.instances,
            partition=partition,
            executor=executor[0] if executor else None,
            host=_host(),
            pid=os.getpid(),
            rows_in=sum(work.rows_in for work in works),
            bytes_in=sum(work.bytes_in for work in works),
            rows_out=sums(work.rows_out for work in works),
            busy=max(work.busy for work in works),
            busy_total=sum(work.busy for work in works),
            cpu=sum(work.cpu for work in works),
            seconds=seconds,
            born_from=born_from,
            born_to=born_to,
            segments=segments,
            staged=staged,
            bad_rows=len(bad),
            bad_example=f"{bad[0][0]}: {bad[0][1]}"[:500] if bad else "",
            traffic=sums(work.traffic for work in works),
            rows_by_channel=sums(work.rows_by_channel for work in works),
            by_spark_sql=self.by_spark_sql,
            memory=resident_bytes(os.getpid()),
            executor_memory=resident_bytes(executor[1]) if executor else None,
        )

    def _segments(
        self, stage: Stage, outputs: dict[str, list[pa.RecordBatch]], batch: int, partition: int
    ) -> Iterator[NewSegment]:
        for output, parts in outputs.items():
            for channel in stage.channels.get(output, ()):
                rows, schema = _in_layout(parts, channel)
                if not any(part.num_rows for part in rows):
                    continue
                written = self.program.store.write(channel.name, segment_name(batch, partition), rows, schema)
                yield NewSegment(
                    channel.name, written.path, written.rows, written.bytes, self.descriptor.slot, *self.born
                )


#: Staged files, and segments.
_Written = tuple[tuple[tuple[str, str], ...], tuple[NewSegment, ...]]


def _in_handy_batches(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order: large batches cut, runs of small ones joined. A reader with a backlog finds many
    small segments, and every call of a function has its price."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows < SMALL_BATCH_ROWS:
            small.append(batch)
            rows += batch.num_rows
            if rows < SMALL_BATCH_ROWS:
                continue
        if small:
            yield _joined(small)
            small, rows = [], 0
        if batch.num_rows >= SMALL_BATCH_ROWS:
            for first in range(0, batch.num_rows, most):
                yield batch.slice(first, most) if batch.num_rows > most else batch
    if small:
        yield _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _gather(stage: Stage, work: _Work, batch: pa.RecordBatch) -> None:
    work.gathered.append(batch)
    work.gathered_rows += batch.num_rows
    if work.gathered_rows >= FOLD_ROWS and hasattr(stage.function, "fold"):
        _fold(stage, work)


def _fold(stage: Stage, work: _Work) -> None:
    """Have the function make what it can of the rows so far: fresh memory for all of them costs more than the work."""
    if stage.function is None or not work.gathered:
        return
    began, cpu = time.perf_counter(), time.thread_time()
    try:
        work.folded += stage.function(_joined(work.gathered)).combine_chunks().to_batches()
    except Exception as error:
        raise failure(stage, error) from error
    work.gathered, work.gathered_rows = [], 0
    work.busy += time.perf_counter() - began
    work.cpu += time.thread_time() - cpu


def _call(stage: Stage, work: _Work, batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """The function's outputs for a batch. Where bad rows may go elsewhere, a batch that fails is halved until they
    stand alone; nothing of a failed call is kept, so no row comes out twice."""
    if stage.function is None:
        return [(MAIN_OUTPUT, batch)]
    try:
        result = stage.function(batch)
        if not stage.outputs:  # a sink's own function: rows end here
            return [(MAIN_OUTPUT, batch)]
        return list(outputs_of_call(result, stage.outputs))
    except PenstockError:
        raise
    except Exception as error:
        if stage.on_error is OnError.FAIL:
            raise failure(stage, error) from error
        if batch.num_rows == 1:
            work.bad.append((f"{type(error).__name__}: {error}", _row_text(batch)))
            return []
        half = batch.num_rows // 2
        return _call(stage, work, batch.slice(0, half)) + _call(stage, work, batch.slice(half))


def _outputs(stage: Stage, works: Sequence[_Work]) -> dict[str, list[pa.RecordBatch]]:
    """What all instances emitted, by output, in the order of the instances."""
    outputs: dict[str, list[pa.RecordBatch]] = {}
    for work in works:
        for output, parts in work.outputs.items():
            outputs.setdefault(output, []).extend(parts)
        if work.bad and stage.on_error is OnError.DEAD_LETTER:
            letters = _dead_letters(stage.operator, work.bad)
            work.rows_out[DEAD_LETTER] = letters.num_rows
            outputs.setdefault(DEAD_LETTER, []).append(letters)
    return outputs


def _in_layout(parts: Sequence[pa.RecordBatch], channel: Channel) -> tuple[list[pa.RecordBatch], pa.Schema]:
    if not channel.key:
        return list(parts), channel.schema
    table = pa.Table.from_batches(parts, channel.schema).combine_chunks()
    batches = table.to_batches(max_chunksize=GROUP_BATCH_ROWS)
    return [sort_by_group(batch, channel.key, channel.groups) for batch in batches], grouped_schema(channel.schema)


def _by_output(batch: pa.RecordBatch, stage: Stage) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of Spark SQL, in the declared schema, by the output that their column names."""
    if stage.output_column is None:
        [output] = stage.outputs or (MAIN_OUTPUT,)
        yield output, batch.cast(stage.outputs[output]) if stage.outputs else batch
        return
    index = batch.schema.get_field_index(stage.output_column)
    names = batch.column(index)
    rows = batch.remove_column(index)
    for name in names.unique().to_pylist():
        if name not in stage.outputs:
            known = ", ".join(stage.outputs)
            problem = PenstockError(
                "BAD_FUNCTION", f'a row names the output "{name}".', f"The operator declares: {known}."
            )
            raise failure(stage, problem)
        yield name, rows.filter(pa.compute.equal(names, name)).cast(stage.outputs[name])


def _row_text(batch: pa.RecordBatch) -> str:
    return json.dumps(batch.to_pylist()[0], default=str)[:BAD_ROW_TEXT]


def _dead_letters(operator: str, bad: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    errors, rows = zip(*bad, strict=True)
    return pa.record_batch([[operator] * len(bad), list(errors), list(rows)], schema=DEAD_LETTER_SCHEMA)
