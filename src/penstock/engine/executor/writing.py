"""What a bundle writes: segments of channels, and the staged files of a sink.

A bundle mostly writes once, at the end of its share. The rows of an instance that has made many are written before
that, so that the memory of a bundle does not grow with the rows of a micro-batch. Nobody sees these files before the
batch is published."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.channels.key_hashes import hashed_schema, with_hashes
from penstock.channels.keys import grouped_schema, sort_by_group
from penstock.channels.layout import Channel
from penstock.channels.records import NewSegment
from penstock.channels.segments import SegmentStore, segment_name
from penstock.engine.executor.instance import Work, Written
from penstock.engine.message.program import Stage
from penstock.topology.definition import MAIN_OUTPUT

#: Rows of a by-key channel are sorted by group in batches of at most this many: a reader that stops in the middle of
#: a segment then still leaves work for every group.
GROUP_BATCH_ROWS = 16_384


@dataclass(frozen=True)
class BundleWriter:
    """Writes the files of one bundle. Any of its instances may call it."""

    store: SegmentStore
    slot: str
    batch: int
    partition: int
    #: When the oldest and the newest of these rows came into the topology.
    born: tuple[float, float]
    #: Numbers for files: a share that has made much has several.
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def write(self, stage: Stage, outputs: Mapping[str, list[pa.RecordBatch]]) -> Written:
        staged: tuple[tuple[str, str], ...] = ()
        if stage.file_writer is not None and outputs.get(MAIN_OUTPUT):
            staged = (stage.file_writer.write(outputs[MAIN_OUTPUT], self._file_name()),)
        return Written(staged, tuple(self._segments(stage, outputs)))

    def write_rest(self, stage: Stage, works: Sequence[Work]) -> Written:
        """All that the instances made in a stage, in their order, with what they have not had written yet."""
        written: list[Written] = []
        rest: dict[str, list[pa.RecordBatch]] = {}
        for work in works:
            if work.written:
                written += [self.write(stage, rest), *work.written]
                rest = {}
            for output, parts in work.take_outputs(stage.operator).items():
                rest.setdefault(output, []).extend(parts)
        written.append(self.write(stage, rest))
        staged = tuple(file for one in written for file in one.staged)
        return Written(staged, tuple(segment for one in written for segment in one.segments))

    def _file_name(self) -> str:
        number = next(self._numbers)
        return f"part-{self.batch:010d}-{self.partition:05d}" + (f".{number}" if number else "")

    def _segments(self, stage: Stage, outputs: Mapping[str, list[pa.RecordBatch]]) -> Iterator[NewSegment]:
        for output, parts in outputs.items():
            for channel in stage.channels.get(output, ()):
                rows, schema = _in_layout(parts, channel)
                if not any(part.num_rows for part in rows):
                    continue
                written = self.store.write(channel.name, segment_name(self.batch, self.partition), rows, schema)
                yield NewSegment(channel.name, written.path, written.rows, written.bytes, self.slot, *self.born)


def _in_layout(parts: Sequence[pa.RecordBatch], channel: Channel) -> tuple[list[pa.RecordBatch], pa.Schema]:
    if channel.hashed:
        hashed = [with_hashes(part, channel.hashed) for part in parts]
        return hashed, hashed_schema(channel.schema, channel.hashed)
    if not channel.key:
        return list(parts), channel.schema
    table = pa.Table.from_batches(parts, channel.schema).combine_chunks()
    batches = table.to_batches(max_chunksize=GROUP_BATCH_ROWS)
    return [sort_by_group(batch, channel.key, channel.groups) for batch in batches], grouped_schema(channel.schema)
