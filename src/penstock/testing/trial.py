"""`testing.run`: a topology's functions on rows that a test gives, and the rows that reach the sinks.

    results = testing.run(topology, {"orders": [{"id": 1, "item": "tea"}]})
    assert results["out"] == [{"id": 1, "item": "TEA"}]

Every operator works once, in topological order, on all rows of its inputs, in this process. The rows go through the
engine's own code: split over the instances, handed to the function, checked against the declared schema, and written to
segments in a temporary folder. Only DataFrame functions need Spark (see local_spark.py);
processors of stateful operators work on state in memory (see processor_batches.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.channels.layout import Channel, channel_name, channels_of
from penstock.channels.records import NewSegment, Segment
from penstock.channels.segments import SegmentStore
from penstock.cluster.model import Slot
from penstock.engine.executor.bundle import by_output
from penstock.engine.executor.instance import Instance, Work
from penstock.engine.executor.readers import ChannelReader
from penstock.engine.executor.writing import BundleWriter
from penstock.engine.message.program import Stage
from penstock.engine.message.shares import Bundle, Descriptor, InputRange, Spread, split
from penstock.engine.spark.failures import as_named_error
from penstock.failing import OperatorFailure
from penstock.kinds import SinkPlace
from penstock.testing.clock import Clock
from penstock.testing.given_rows import Rows, given_rows
from penstock.testing.local_spark import call_with_frame, rows_through_spark
from penstock.testing.processor_batches import ProcessorBatches
from penstock.topology.dataframe_function import takes_dataframes
from penstock.topology.declaration import Topology
from penstock.topology.definition import (
    OUTPUT_COLUMN,
    Broadcast,
    Keyed,
    Map,
    Operator,
    Sink,
    Source,
    Stream,
    TopologyDefinition,
)
from penstock.topology.state.processing import Processing

_SLOT = Slot("testing", 0)


class Results(Mapping[str, list[dict[str, Any]]]):
    """The rows that reached each sink, by the sink's name: `results["out"]` is a list with a dict for each row."""

    def __init__(self, tables: Mapping[str, pa.Table], bad_rows: Mapping[str, int]) -> None:
        self._tables = dict(tables)
        #: How many rows each operator could not handle, by its name; operators without bad rows are not in it.
        self.bad_rows = dict(bad_rows)

    def __getitem__(self, sink: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._tables[sink].to_pylist()
        return rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return f"Results({dict(self)!r}, bad_rows={self.bad_rows!r})"

    def table(self, sink: str) -> pa.Table:
        """The same rows as a pyarrow Table."""
        return self._tables[sink]


def run(topology: Topology, rows: Mapping[str, Rows], *, clock: Clock | None = None) -> Results:
    """Run the topology's functions on `rows` (by source: a list of dicts, or Arrow) and return the sinks' rows.

    With a `clock`, a rate source without rows emits what is due by it, and functions that call `time.time()` get its
    time. An operator that fails raises the same named error as in production, with the function's own exception as its
    cause."""
    definition = topology.definition()
    given = given_rows(definition, rows, clock)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-testing-") as folder,
        clock.installed() if clock is not None else nullcontext(),
    ):
        trial = _Trial(definition, Path(folder), clock)
        for operator in definition.operators:
            trial.work(operator, given.get(operator.name, []))
        return Results(trial.sinks, trial.bad_rows)


@dataclass
class _Trial:
    """One call of `run`: the channels so far, and what has reached the sinks."""

    definition: TopologyDefinition
    folder: Path
    clock: Clock | None = None
    sinks: dict[str, pa.Table] = field(default_factory=dict)
    bad_rows: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = SegmentStore(str(self.folder / "segments"))
        self.layout = channels_of(self.definition)
        self.segments: dict[str, list[Segment]] = {name: [] for name in self.layout}

    def work(self, operator: Operator, given: list[pa.RecordBatch]) -> None:
        """All that one operator does: its inputs are complete, because operators come in topological order."""
        try:
            if isinstance(operator, Source):
                self._emit(operator, given)
            elif isinstance(operator, Keyed) and isinstance(operator.function, Processing):
                self._emit(operator, self._processed(operator, operator.function))
            elif takes_dataframes(operator):
                folder = self.folder / "spark" / operator.name
                self._emit(operator, rows_through_spark(self.definition, operator, self._rows, folder))
            elif isinstance(operator, Map):
                self._call(operator, operator.function)
            elif isinstance(operator, Sink):
                self._arrive(operator)
        except OperatorFailure as failure:
            raise as_named_error(operator, str(failure)) from failure.__cause__

    def _emit(self, operator: Operator, batches: list[pa.RecordBatch]) -> None:
        """Rows that need no function: those of a source, and those that Spark has made."""
        stage = self._stage(operator, None, OUTPUT_COLUMN if self._names_outputs(operator) else None)
        writer, work = self._writer(operator), Work()
        for batch in batches:
            for output, part in by_output(batch, stage):
                work.emit(output, part, keep=True)
        self._publish(operator, writer.write_rest(stage, [work]).segments)

    def _processed(self, operator: Keyed, function: Processing) -> list[pa.RecordBatch]:
        """What a processor makes of all rows, in one micro-batch, and of the watermark that follows them."""
        batches = ProcessorBatches(function, Clock() if self.clock is None else self.clock)
        rows = batches.work(self._rows(self._inputs(operator)).to_pylist())
        return [batches.as_arrow(rows)]

    def _call(self, operator: Operator, function: Any) -> None:
        """An Arrow function, on each instance's share of the rows, one instance after the other."""
        stage, writer = self._stage(operator, function), self._writer(operator)
        reader = ChannelReader(self.store, self.definition.schema_of_all(self._inputs(operator)))
        works: list[Work] = []
        for share in split([self._range(stream) for stream in self._inputs(operator)], [self._bundle(operator)]):
            for portions in reader.read(Descriptor.parse(share.as_descriptor()), None):
                instance = Instance([stage], writer.write)
                instance.run(portions)
                works += instance.works
        self._publish(operator, writer.write_rest(stage, works).segments)
        if bad := sum(work.bad_rows for work in works):
            self.bad_rows[operator.name] = bad

    def _arrive(self, sink: Sink) -> None:
        self.sinks[sink.name] = table = self._rows(self._inputs(sink))
        if not sink.spec.users_function:
            return
        if function := sink.spec.bundle_function():
            self._call(sink, function)
        elif writer := sink.spec.batch_writer(SinkPlace(sink.name)):
            call_with_frame(sink, writer.write, table)

    def _rows(self, streams: tuple[Stream, ...]) -> pa.Table:
        """All rows of streams that are interleaved, in the order in which they were emitted."""
        schema = self.definition.schema_of_all(streams)
        reader = ChannelReader(self.store, schema)
        batches: list[pa.RecordBatch] = []
        for share in split([self._range(stream) for stream in streams], [Bundle(_SLOT, 1)]):
            batches += reader.rows(Descriptor.parse(share.as_descriptor()))
        return pa.Table.from_batches(batches, schema)

    def _range(self, stream: Stream) -> InputRange:
        channel = self.layout[channel_name(self.definition, stream)]
        segments = self.segments[channel.name]
        spread = Spread.BROADCAST if isinstance(stream.grouping, Broadcast) else Spread.SHUFFLE
        stop = segments[-1].stop_row if segments else 0
        return InputRange(segments, 0, stop, Spread.BY_KEY if channel.key else spread, channel.groups)

    def _publish(self, operator: Operator, written: tuple[NewSegment, ...]) -> None:
        for one in written:
            before = self.segments[one.channel]
            first = before[-1].stop_row if before else 0
            before.append(Segment(**vars(one), first_row=first, operator=operator.name, batch=0))

    def _stage(self, operator: Operator, function: Any, output_column: str | None = None) -> Stage:
        return Stage(
            operator=operator.name,
            where=operator.where,
            function=function,
            outputs=dict(operator.outputs),
            channels={output: self._channels(operator, output) for output in operator.outputs},
            on_error=operator.on_error,
            gathers=isinstance(operator, Map) and operator.gathers,
            output_column=output_column,
        )

    def _channels(self, operator: Operator, output: str) -> tuple[Channel, ...]:
        return tuple(one for one in self.layout.values() if (one.producer, one.output) == (operator.name, output))

    def _names_outputs(self, operator: Operator) -> bool:
        return takes_dataframes(operator) and len(operator.outputs) > 1

    def _inputs(self, operator: Operator) -> tuple[Stream, ...]:
        return self.definition.inputs_of(operator.name)

    def _bundle(self, operator: Operator) -> Bundle:
        return Bundle(_SLOT, operator.instances)

    def _writer(self, operator: Operator) -> BundleWriter:
        return BundleWriter(self.store, _SLOT.name, 0, 0, (0.0, 0.0))
