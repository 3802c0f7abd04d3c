"""A bundle, inside a Spark task: read the share, run the function on the instances, write segments, report.

Rows never leave Arrow here: the query itself carries one descriptor in and one report out per task.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext

from penstock.channels.keys import grouped_schema, sort_by_group
from penstock.channels.layout import Channel
from penstock.channels.records import NewSegment
from penstock.channels.segments import segment_name
from penstock.engine import worker
from penstock.engine.failures import failure
from penstock.engine.instance import Instance, Work
from penstock.engine.manifest import BundleReport, sums
from penstock.engine.program import PackedProgram, Program, Stage
from penstock.engine.readers import RowReader
from penstock.engine.splitting import Descriptor
from penstock.errors import PenstockError
from penstock.topology.definition import DEAD_LETTER, DEAD_LETTER_SCHEMA, MAIN_OUTPUT, OnError

REPORT_SCHEMA = pa.schema([("report", pa.binary())])
#: Rows of a by-key channel are sorted by group in batches of at most this many: a reader that stops in the middle of
#: a segment then still leaves work for every group.
GROUP_BATCH_ROWS = 16_384
#: Rows that Spark handed to a bundle are as old as their batch: the property under which the driver says how old.
BORN_PROPERTY = "penstock.born"


def run(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The Arrow path: descriptors in, reports out."""
    worker.prepare()
    program = packed.unpack()
    for batch in batches:
        for descriptor in batch.column(0):
            yield _as_batch(_Bundle(program, Descriptor.parse(descriptor.as_py())).run())


def read(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The DataFrame path's first half: descriptors in, rows out, for Spark SQL."""
    worker.prepare()
    program = packed.unpack()
    reader = RowReader(program.store)
    for batch in batches:
        for descriptor in batch.column(0):
            yield from reader.rows(Descriptor.parse(descriptor.as_py()))


def write(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The DataFrame path's second half: rows in, reports out."""
    worker.prepare()
    program = packed.unpack()
    started = time.perf_counter()
    collected = list(batches)
    _, partition = worker.running_task()
    share = Descriptor(slot=f"task/{partition}", instances=1, pieces=(), load=None)
    bundle = _Bundle(program, share, started)
    bundle.take_rows(collected)
    yield _as_batch(bundle.reports())


def warm(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Nothing, but in a worker process that is there afterwards; says on which executor."""
    worker.prepare()
    for batch in batches:
        yield pa.record_batch(
            [pa.array([(worker.executor_id() or "").encode()] * batch.num_rows, pa.binary())], names=["x"]
        )


def _as_batch(reports: Sequence[BundleReport]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([one.as_json() for one in reports], pa.binary())], schema=REPORT_SCHEMA)


class _Bundle:
    """One share of one micro-batch, from reading it to the reports: one of every operator in the chain."""

    def __init__(self, program: Program, descriptor: Descriptor, started: float | None = None) -> None:
        self.program = program
        self.descriptor = descriptor
        self.started = started if started is not None else time.perf_counter()
        #: By instance, what it did in each stage.
        self.works: list[list[Work]] = []
        self.born = (0.0, 0.0)
        self.by_spark_sql = False

    def run(self) -> list[BundleReport]:
        reader, first = self.program.reader, self.program.stages[0]
        if reader is None:
            raise RuntimeError(f"{first.operator} has nothing to read")
        self.born = reader.born(self.descriptor)
        instances = [Instance(self.program.stages) for _ in range(self.descriptor.instances)]
        self.works = [instance.works for instance in instances]
        bad_row = self.works[0][0].refuse if first.on_error is not OnError.FAIL else None
        try:
            work = list(zip(instances, reader.read(self.descriptor, bad_row), strict=True))
            if len(work) == 1:
                instances[0].run(work[0][1])
            else:
                list(worker.threads(len(work)).map(lambda one: one[0].run(one[1]), work))
        except PenstockError as error:
            raise failure(first, error) from error
        return self.reports()

    def take_rows(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Rows that Spark SQL has made already; only where they go is left to do."""
        work = Work()
        for batch in batches:
            for output, part in _by_output(batch, self.program.stages[0]):
                work.emit(output, part, keep=True)
        self.works = [[work]]
        self.by_spark_sql = True
        context = TaskContext.get()
        born = context.getLocalProperty(BORN_PROPERTY) if context else None
        self.born = tuple(json.loads(born)) if born else (0.0, 0.0)

    def reports(self) -> list[BundleReport]:
        """Of every stage, in their order: what is written is written here."""
        batch, partition = worker.running_task()
        stages = [
            (stage, list(works))
            for stage, works in zip(self.program.stages, zip(*self.works, strict=True), strict=True)
        ]
        written = [self._write(stage, works, batch, partition) for stage, works in stages]
        seconds = time.perf_counter() - self.started
        return [
            self._report(stage, works, partition, seconds, *files)
            for (stage, works), files in zip(stages, written, strict=True)
        ]

    def _write(self, stage: Stage, works: Sequence[Work], batch: int, partition: int) -> _Written:
        outputs = _outputs(stage, works)
        staged: tuple[tuple[str, str], ...] = ()
        if stage.file_writer is not None and outputs.get(MAIN_OUTPUT):
            name = f"part-{batch:010d}-{partition:05d}"
            staged = (stage.file_writer.write(outputs[MAIN_OUTPUT], name),)
        return staged, tuple(self._segments(stage, outputs, batch, partition))

    def _report(
        self,
        stage: Stage,
        works: Sequence[Work],
        partition: int,
        seconds: float,
        staged: tuple[tuple[str, str], ...],
        segments: tuple[NewSegment, ...],
    ) -> BundleReport:
        born_from, born_to = self.born
        descriptor, executor = self.descriptor, worker.executor()
        bad = [bad for work in works for bad in work.bad]
        return BundleReport(
            operator=stage.operator,
            slot=descriptor.slot,
            instances=descriptor.instances,
            partition=partition,
            executor=executor[0] if executor else None,
            host=worker.host_name(),
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
            memory=worker.resident_bytes(os.getpid()),
            executor_memory=worker.resident_bytes(executor[1]) if executor else None,
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


def _outputs(stage: Stage, works: Sequence[Work]) -> dict[str, list[pa.RecordBatch]]:
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


def _dead_letters(operator: str, bad: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    errors, rows = zip(*bad, strict=True)
    return pa.record_batch([[operator] * len(bad), list(errors), list(rows)], schema=DEAD_LETTER_SCHEMA)
