"""From the report of a micro-batch to its sample. The report says what the bundles saw, `DriverKnowledge` what only the
driver knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.channels.layout import channel_name
from penstock.monitor.latency import LatencySketch
from penstock.monitor.report import BatchReport, BundleReport, sums
from penstock.monitor.sample import UNKNOWN_SLOT, Levels, Sample, SlotWork, StateSize, Waiting, Way
from penstock.monitor.unknown import total
from penstock.topology.definition import TopologyDefinition

#: How a bundle calls its slot where Spark has chosen it: by its partition, which for a keyed operator is its task.
_TASK = "task/"


@dataclass(frozen=True)
class DriverKnowledge:
    """What only the driver knows of a micro-batch; what it does not know either stays None."""

    #: Channel -> stream, of the operator's inputs.
    streams: Mapping[str, str] = field(default_factory=dict)
    is_sink: bool = False
    #: Executor -> slot, to say where bundles really ran.
    executors: Mapping[str, str] = field(default_factory=dict)
    #: Of keyed operators: the slot of each task.
    tasks: Sequence[str] = ()
    #: Rows by channel, each counted once, and bytes by (producing, consuming slot), as the feeds gave them out
    #: (`engine.query.feeds.Batch`).
    rows_by_channel: Mapping[str, int] | None = None
    traffic: Mapping[Way, int] | None = None
    #: Of rows that Spark SQL reads, what should have come over links by the sizes of the segments.
    links: Mapping[Way, int] | None = None
    #: When the operator's batch before this one finished; for the first one, when the operator was started.
    previous_finished: float | None = None
    levels: Levels | None = None
    state: Mapping[int, StateSize] | None = None
    #: Seconds by part: penstock.monitor.metric.OVERHEAD_PARTS.
    overhead_parts: Mapping[str, float] | None = None


def streams_of(definition: TopologyDefinition, operator: str) -> dict[str, str]:
    """Channel -> stream, of an operator's inputs."""
    return {channel_name(definition, stream): stream.name for stream in definition.inputs_of(operator)}


def waiting(rows: int, size: int, oldest_born: float | None, at: float) -> Waiting:
    """A channel's backlog as it is at a moment."""
    return Waiting(rows, size, None if oldest_born is None else max(at - oldest_born, 0.0))


def sample_of(report: BatchReport, known: DriverKnowledge) -> Sample:
    by_slot: dict[str, list[BundleReport]] = {}
    for bundle in report.bundles:
        by_slot.setdefault(place_of(bundle, known.executors, known.tasks), []).append(bundle)
    by_sql = any(bundle.by_spark_sql for bundle in report.bundles)
    longest_share = _longest_share(report)
    return Sample(
        operator=report.operator,
        batch=report.batch,
        started=report.started,
        finished=report.finished,
        rows=report.rows_in,
        rows_in=_rows_in(report, known),
        rows_out=report.rows_out,
        slots=tuple(_work(slot, bundles, known) for slot, bundles in by_slot.items()),
        bad_rows=report.bad_rows,
        traffic=known.traffic if by_sql else _traffic(by_slot),
        links=known.links if by_sql else _links(by_slot),
        waiting=None if known.previous_finished is None else max(report.started - known.previous_finished, 0.0),
        overhead=None if by_sql else max(longest_share - report.busy - report.busy_elsewhere, 0.0),
        overhead_parts=known.overhead_parts,
        longest_share=longest_share,
        levels=known.levels,
        latency=_latency(report) if known.is_sink else None,
        state=known.state,
    )


def _longest_share(report: BatchReport) -> float:
    """Seconds in which the batch kept its bundles from other work. A micro-batch does so from its start to its end. A
    bundle that stands goes on with its next share while the one before waits to be published, so batches of one
    instance overlap: only the time in which a bundle had its share counts, and that of the longest share."""
    held = [one.times.held for one in report.bundles if one.times is not None]
    return max(held) if held else max(report.finished - report.started, 0.0)


def sample_of_rows(report: BatchReport, is_sink: bool) -> Sample:
    """Only what the report as a whole says of rows: cheaper, and enough where nobody decides on it. Where the work ran,
    and what it cost, stays unknown."""
    return Sample(
        operator=report.operator,
        batch=report.batch,
        started=report.started,
        finished=report.finished,
        rows=report.rows_in,
        rows_in=None,
        rows_out=report.rows_out,
        slots=(SlotWork(UNKNOWN_SLOT, 0),),
        bad_rows=report.bad_rows,
        latency=_latency(report) if is_sink else None,
    )


def place_of(bundle: BundleReport, executors: Mapping[str, str], tasks: Sequence[str]) -> str:
    """Where a bundle ran, if its executor is known; else where it was to run."""
    if bundle.executor is not None and bundle.executor in executors:
        return executors[bundle.executor]
    if bundle.slot.startswith(_TASK):
        task = int(bundle.slot.removeprefix(_TASK))
        return tasks[task] if task < len(tasks) else UNKNOWN_SLOT
    return UNKNOWN_SLOT if bundle.by_spark_sql else bundle.slot


def _work(slot: str, bundles: Sequence[BundleReport], known: DriverKnowledge) -> SlotWork:
    by_sql = any(bundle.by_spark_sql for bundle in bundles)
    return SlotWork(
        slot=slot,
        # Spark runs a task of a keyed operator on any free thread: how many instances that is, the placement says.
        instances=0 if by_sql else sum(bundle.instances for bundle in bundles),
        rows=None if by_sql else sum(bundle.rows_in for bundle in bundles),
        rows_in=_counted(bundles, known),
        rows_out=sums(bundle.rows_out for bundle in bundles),
        bytes_in=None if by_sql else sum(bundle.bytes_in for bundle in bundles),
        bytes_out=None if known.is_sink else sum(segment.bytes for bundle in bundles for segment in bundle.segments),
        busy=sum(bundle.seconds if bundle.by_spark_sql else bundle.busy_total for bundle in bundles),
        cpu=None if by_sql else sum(bundle.cpu for bundle in bundles),
        waiting_input=total([one.times.waiting_input if one.times is not None else None for one in bundles]),
        waiting_room=total([one.times.waiting_room if one.times is not None else None for one in bundles]),
        rows_from=_from(bundles, lambda bundle: bundle.rows_from),
        bytes_from=_from(bundles, lambda bundle: bundle.bytes_from),
        from_driver=total([bundle.from_driver for bundle in bundles]),
        to_driver=total([bundle.to_driver for bundle in bundles]),
        memory=_memory_of_processes(bundles),
        executor_memory=max((one.executor_memory for one in bundles if one.executor_memory is not None), default=None),
    )


def _from(
    bundles: Sequence[BundleReport], counted: Callable[[BundleReport], Mapping[str, int]]
) -> dict[str, int] | None:
    """By where rows came from; None where a bundle read channels and did not count that: Spark SQL, or an older
    Penstock."""
    if any(bundle.by_spark_sql or (bundle.rows_by_channel and not bundle.rows_from) for bundle in bundles):
        return None
    return sums(map(counted, bundles))


def _memory_of_processes(bundles: Iterable[BundleReport]) -> int | None:
    """One process may have run several tasks one after the other: it counts once, with the most it had."""
    most: dict[tuple[str, int], int] = {}
    for bundle in bundles:
        if bundle.memory is not None:
            process = (bundle.host, bundle.pid)
            most[process] = max(most.get(process, 0), bundle.memory)
    return sum(most.values()) if most else None


def _rows_in(report: BatchReport, known: DriverKnowledge) -> dict[str, int] | None:
    if known.rows_by_channel is not None:
        return _by_stream(known.rows_by_channel, known)
    return _counted(report.bundles, known)


def _counted(bundles: Sequence[BundleReport], known: DriverKnowledge) -> dict[str, int] | None:
    """Rows by stream as the bundles counted them; None where one did not: Spark SQL, or an older Penstock."""
    if any(bundle.by_spark_sql or (bundle.rows_in and not bundle.rows_by_channel) for bundle in bundles):
        return None if known.streams else {}
    return _by_stream(sums(bundle.rows_by_channel for bundle in bundles), known)


def _by_stream(channels: Mapping[str, int], known: DriverKnowledge) -> dict[str, int]:
    """Every stream of the operator is in it: nothing read of one is 0 rows, which is known."""
    return {stream: channels.get(channel, 0) for channel, stream in known.streams.items()}


def _traffic(by_slot: Mapping[str, Sequence[BundleReport]]) -> dict[Way, int] | None:
    """None if a segment does not say which slot wrote it, but only which task."""
    traffic: dict[Way, int] = {}
    for slot, bundles in by_slot.items():
        for producer, size in sums(bundle.traffic for bundle in bundles).items():
            if producer.startswith(_TASK):
                return None
            traffic[producer, slot] = size
    return traffic


def _links(by_slot: Mapping[str, Sequence[BundleReport]]) -> dict[Way, int]:
    return {
        (machine, slot): size
        for slot, bundles in by_slot.items()
        for machine, size in sums(bundle.over_links for bundle in bundles).items()
    }


def _latency(report: BatchReport) -> LatencySketch:
    sketch = LatencySketch()
    for bundle in report.bundles:
        if bundle.rows_in:
            shortest, longest = report.finished - bundle.born_to, report.finished - bundle.born_from
            sketch.add_range(shortest, longest, bundle.rows_in)
    return sketch
