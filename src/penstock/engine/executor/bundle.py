"""A bundle, inside a Spark task: read the share, run the function on the instances, write segments, report.

Rows never leave Arrow here: the query itself carries one descriptor in and one report out per task.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import TaskContext

from penstock.engine.executor import worker
from penstock.engine.executor.instance import Instance, Work, Written, in_handy_batches
from penstock.engine.executor.readers import ChannelReader
from penstock.engine.executor.writing import BundleWriter
from penstock.engine.message.program import PackedProgram, Program, Stage
from penstock.engine.message.shares import Descriptor
from penstock.errors import PenstockError
from penstock.failing import failure
from penstock.monitor.read_counts import ReadCounts
from penstock.monitor.report import BundleReport, sums
from penstock.topology.definition import MAIN_OUTPUT, OnError

REPORT_SCHEMA = pa.schema([("report", pa.binary())])
#: Rows that Spark handed to a bundle are as old as their batch: the property under which the driver says how old.
BORN_PROPERTY = "penstock.born"


def run(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The Arrow path: descriptors in, reports out."""
    worker.prepare()
    program = packed.unpack()
    for batch in batches:
        for descriptor in batch.column(0):
            share = Descriptor.parse(descriptor.as_py())
            yield _as_batch(ShareRun(program, share, *worker.running_task()).run())
    worker.share_done()


def read(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The DataFrame path's first half: descriptors in, rows out, for Spark SQL."""
    worker.prepare()
    program = packed.unpack()
    reader = program.reader
    if not isinstance(reader, ChannelReader):
        raise RuntimeError(f"operator {program.stages[0].operator} does not read channels")
    for batch in batches:
        for descriptor in batch.column(0):
            try:
                # Every batch has its price on the way to the JVM, and bundles that stand write many small segments.
                yield from in_handy_batches(reader.rows(Descriptor.parse(descriptor.as_py())))
            except PenstockError as error:
                raise failure(program.stages[0], error) from error
    worker.share_done()


def write(packed: PackedProgram, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The DataFrame path's second half: rows in, reports out."""
    worker.prepare()
    program = packed.unpack()
    started = time.perf_counter()
    batch, partition = worker.running_task()
    share = Descriptor(slot=f"task/{partition}", instances=1, pieces=(), load=None)
    yield _as_batch(ShareRun(program, share, batch, partition, started).take_rows(batches))
    worker.share_done()


def warm(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do nothing but start a worker process, which stays, and say on which executor it is."""
    worker.prepare()
    for batch in batches:
        yield pa.record_batch(
            [pa.array([(worker.executor_id() or "").encode()] * batch.num_rows, pa.binary())], names=["x"]
        )


def _as_batch(reports: Sequence[BundleReport]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([one.as_json() for one in reports], pa.binary())], schema=REPORT_SCHEMA)


class ShareRun:
    """One share of one batch, from reading it to the reports: one of every operator in the chain."""

    def __init__(
        self, program: Program, descriptor: Descriptor, batch: int, partition: int, started: float | None = None
    ) -> None:
        """`partition` tells the shares of a batch apart."""
        self.program = program
        self.descriptor = descriptor
        self.batch = batch
        self.partition = partition
        self.started = started if started is not None else time.perf_counter()
        #: By instance, what it did in each stage.
        self.works: list[list[Work]] = []
        self.born = (0.0, 0.0)
        self.reads = ReadCounts()
        self.by_spark_sql = False

    def run(self) -> list[BundleReport]:
        reader, first = self.program.reader, self.program.stages[0]
        if reader is None:
            raise RuntimeError(f"the program of operator {first.operator} has no reader")
        self.born = reader.born(self.descriptor)
        writer = self._writer()
        counted = getattr(reader, "reading_is_work", False)
        instances = [Instance(self.program.stages, writer.write, counted) for _ in range(self.descriptor.instances)]
        self.works = [instance.works for instance in instances]
        refuse = [instance.refuse for instance in instances] if first.on_error is not OnError.FAIL else None
        try:
            work = list(zip(instances, reader.read(self.descriptor, refuse, self.reads), strict=True))
            if len(work) == 1:
                instances[0].run(work[0][1])
            else:
                worker.run_all([partial(one.run, rows) for one, rows in work])
        except PenstockError as error:
            raise failure(first, error) from error
        return self._reports(writer)

    def take_rows(self, batches: Iterable[pa.RecordBatch]) -> list[BundleReport]:
        """Write the rows that Spark SQL has made: the bundle has nothing else to do with them."""
        context = TaskContext.get()
        born = context.getLocalProperty(BORN_PROPERTY) if context else None
        self.born = tuple(json.loads(born)) if born else (0.0, 0.0)
        self.by_spark_sql = True
        writer, [stage] = self._writer(), self.program.stages
        instance = Instance([stage], writer.write)
        self.works = [instance.works]
        for batch in batches:
            for output, part in by_output(batch, stage):
                instance.works[0].emit(output, part, keep=True)
            instance.relieve()
        return self._reports(writer)

    def _writer(self) -> BundleWriter:
        return BundleWriter(self.program.store, self.descriptor.slot, self.batch, self.partition, self.born)

    def _reports(self, writer: BundleWriter) -> list[BundleReport]:
        """The reports of all stages, in their order, after the rest of their rows is written."""
        stages = [
            (stage, list(works))
            for stage, works in zip(self.program.stages, zip(*self.works, strict=True), strict=True)
        ]
        written = [writer.write_rest(stage, works) for stage, works in stages]
        seconds = time.perf_counter() - self.started
        return [
            self._report(stage, works, writer.partition, seconds, files)
            for (stage, works), files in zip(stages, written, strict=True)
        ]

    def _report(
        self,
        stage: Stage,
        works: Sequence[Work],
        partition: int,
        seconds: float,
        written: Written,
    ) -> BundleReport:
        born_from, born_to = self.born
        descriptor, executor = self.descriptor, worker.executor()
        # Only the first operator of a chain reads channels.
        reads = self.reads if stage is self.program.stages[0] else ReadCounts()
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
            segments=written.segments,
            staged=written.staged,
            bad_rows=sum(work.bad_rows for work in works),
            bad_example=next((work.bad_example for work in works if work.bad_rows), ""),
            traffic=sums(work.traffic for work in works),
            rows_by_channel=sums(work.rows_by_channel for work in works),
            rows_from=reads.rows,
            bytes_from=reads.bytes,
            # A request that was given up goes on in a thread of its own, and adds to these.
            over_links=dict(reads.links),
            by_spark_sql=self.by_spark_sql,
            memory=worker.resident_bytes(os.getpid()),
            executor_memory=worker.resident_bytes(executor[1]) if executor else None,
        )


def by_output(batch: pa.RecordBatch, stage: Stage) -> Iterator[tuple[str, pa.RecordBatch]]:
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
