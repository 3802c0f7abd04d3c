"""What all queries of a run share: the declaration, Spark, the channels, the catalog, and where everything is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from penstock.channels.key_hashes import Key
from penstock.channels.layout import Channel, channel_name
from penstock.channels.log import Channels
from penstock.channels.segments import SegmentStore
from penstock.clock import run_time
from penstock.engine.query.feeds import Batch
from penstock.engine.query.paces import Paces
from penstock.engine.query.splitting import Splitting
from penstock.engine.query.standing_room import StandingRoom
from penstock.engine.spark.java_values import java_of
from penstock.engine.spark.streams import Streams
from penstock.engine.state.checkpoint_log import CheckpointLog
from penstock.kinds import FileWriter, SinkPlace, SourcePlace
from penstock.monitor.report import BatchReport
from penstock.settings import Settings
from penstock.topology.definition import Operator, Sink, Source, TopologyDefinition

#: A function that is called with every published batch: the report of the batch, and what its feeds gave it to read.
BatchListener = Callable[[BatchReport, Sequence[Batch]], None]


@dataclass(frozen=True)
class RunContext:
    """What all queries of one run share. A run that redefines its topology hands out another context."""

    definition: TopologyDefinition
    spark: SparkSession
    streams: Streams
    channels: Channels
    layout: dict[str, Channel]
    store: SegmentStore
    settings: Settings
    #: The location that has the checkpoint of every operator.
    checkpoints: str
    published: BatchListener
    #: A few letters that no other state has.
    identity: str = ""
    #: By operator: how many batches it may have had before it began anew and counted its batches from 0 again.
    batches_before: Mapping[str, int] = field(default_factory=dict)
    #: By keyed operator: how rows reach its tasks.
    splits: Mapping[str, Splitting] = field(default_factory=dict)
    #: Whether bundles stand.
    room: StandingRoom = field(default_factory=StandingRoom)
    #: By source: what the source remembers as long as the run lasts.
    memories: dict[str, dict[str, Any]] = field(default_factory=dict)
    paces: Paces = field(default_factory=Paces)

    def checkpoint(self, operator: str) -> str:
        """Where Spark keeps the offsets and the state of an operator's query."""
        return f"{self.checkpoints}/{operator}"

    def checkpoint_log(self, operator: str) -> CheckpointLog:
        """What Spark has written down about the batches of an operator's query."""
        return CheckpointLog.open(self.spark, self.checkpoint(operator))

    def place_of_source(self, source: Source) -> SourcePlace:
        return SourcePlace(
            source.name,
            self.channels.catalog,
            run_time,
            source.where,
            prefix=f"source/{source.name}/",  # all kinds of sources have this prefix: Catalog.give_up knows it
            memory=self.memories.setdefault(source.name, {}),
        )

    def place_of_sink(self, sink: Sink, first: Operator | None = None) -> SinkPlace:
        """The place of a sink that is written by the query of a chain. `first` is the first operator of the chain; None
        means that the sink has a query of its own."""
        before = self.batches_before.get(sink.name, 0)
        by = "" if first is None else by_of(sink.name, first.name, self.batches_before)
        mark = mark_of(self.identity, sink.name, before)
        return SinkPlace(sink.name, mark, by, before, java_of, self.settings.durable)

    def file_writer(self, sink: Sink, first: Operator | None = None) -> FileWriter | None:
        """What writes the files of a sink; None if the sink writes no files. `first` is as in `place_of_sink`."""
        return sink.spec.file_writer(self.place_of_sink(sink, first))

    def split_key(self, operator: str) -> Key:
        """The key by whose hashes the tasks of an operator read their rows; empty if Spark shuffles the rows, or if the
        operator has no tasks."""
        return self.splits.get(operator, Splitting()).key

    def output_channels(self, operator: str) -> list[Channel]:
        return [channel for channel in self.layout.values() if channel.producer == operator]

    def readers_of(self, chain: Sequence[Operator]) -> list[Operator]:
        """The operators outside of a chain that read what the chain writes."""
        written = set(self.written_by(chain))
        names = {one.consumer for one in self.definition.streams if channel_name(self.definition, one) in written}
        return [one for one in self.definition.operators if one.name in names]

    def written_by(self, chain: Sequence[Operator]) -> list[str]:
        """The channels that a chain writes. The channels between its operators stay empty, and are not among them."""
        names = [operator.name for operator in chain]
        inside = {
            channel_name(self.definition, stream) for name in names[1:] for stream in self.definition.inputs_of(name)
        }
        return [one.name for name in names for one in self.output_channels(name) if one.name not in inside]


def by_of(sink: str, first: str, batches_before: Mapping[str, int]) -> str:
    """What the names of a sink's files say of the query that writes them, by its first operator. Another query may have
    written to the sink before, and may do so again. Each counts its own batches."""
    anew = batches_before.get(first, 0)
    return "" if first == sink else f".{first}{f'.{anew}' if anew else ''}"


def mark_of(identity: str, sink: str, before: int) -> str:
    """The mark on everything that a sink writes into a place that others write to as well. It holds the identity of the
    state, and how many batches the sink may have had before it began anew and counted its batches from 0 again."""
    return f"{identity}{f'x{before}' if before else ''}-{sink}"
