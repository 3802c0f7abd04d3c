"""The one list of metrics: name, unit, meaning. The statistics store has a column for each that is stored, and
docs/metrics.md is generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fold(StrEnum):
    """How the values of short intervals become that of a longer one."""

    SUM = "sum"
    MAX = "largest"
    #: Sketches are merged, so quantiles of a longer interval are as exact as those of a short one.
    MERGE = "merged"
    #: Not stored: worked out from those that are.
    DERIVED = "worked out"


class Of(StrEnum):
    """What a metric is a metric of."""

    OPERATOR = "operator"
    SOURCE = "source"
    SINK = "sink"
    #: An operator on one slot.
    SLOT = "slot"
    STREAM = "stream"
    #: A machine that is really apart from the others, in a lab.
    MACHINE = "machine"


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str
    meaning: str
    fold: Fold
    of: tuple[Of, ...]

    @property
    def stored(self) -> bool:
        return self.fold is not Fold.DERIVED


#: What Spark does in a micro-batch beside the work on its rows, as far as Spark says how long it takes.
OVERHEAD_PARTS: Mapping[str, str] = {
    "ask": "asking the sources what there is",
    "get_batch": "asking them for the partitions of the batch",
    "planning": "planning the query of the batch",
    "offset_log": "writing the offsets before the batch",
    "commit_log": "writing the commit after it",
}

#: Where bundles get the rows of channels from.
READ_FROM: Mapping[str, str] = {
    "link": "came over a link, from the machine that wrote them",
    "kept": "the machine had kept since another bundle fetched them over its link",
    "own": "the machine itself had written",
    "store": "another machine had written and that bundles read from the store, because that machine was gone or did "
    "not answer, or because `segment_origins` is off",
}

_ANY = (Of.OPERATOR, Of.SLOT, Of.STREAM)
_PLACED = (Of.OPERATOR, Of.SLOT)
_MACHINE = (Of.MACHINE,)
_WAITING = (Of.OPERATOR, Of.STREAM)


def _sum(name: str, unit: str, meaning: str, of: tuple[Of, ...] = (Of.OPERATOR,)) -> Metric:
    return Metric(name, unit, meaning, Fold.SUM, of)


def _max(name: str, unit: str, meaning: str, of: tuple[Of, ...] = (Of.OPERATOR,)) -> Metric:
    return Metric(name, unit, meaning, Fold.MAX, of)


def _derived(name: str, unit: str, meaning: str, of: tuple[Of, ...] = (Of.OPERATOR,)) -> Metric:
    return Metric(name, unit, meaning, Fold.DERIVED, of)


_LIST = (
    # Counts
    _sum("seconds", "s", "Time in which Penstock measured.", (*_ANY, Of.MACHINE)),
    _sum("batches", "batches", "Batches published.", _PLACED),
    _sum(
        "rows",
        "rows",
        "Rows executed. A row of a broadcast counts once for the operator and once for every instance that got it on "
        "the slots. Of a stream: rows its reader took from it.",
        _ANY,
    ),
    _sum("rows_out", "rows", "Rows emitted, on all outputs. Of a stream: rows its producer emitted on it.", _ANY),
    _sum("bad_rows", "rows", "Rows that the function could not handle: skipped, or sent to the dead-letter output."),
    _sum(
        "late_rows",
        "rows",
        "Rows that a keyed operator dropped because its watermark had passed them. Rows of one key and window that an "
        "aggregate combined before they reached its state count as one.",
    ),
    _sum("bytes_in", "bytes", "Bytes of the rows read, in memory.", _PLACED),
    _sum("bytes_out", "bytes", "Bytes of the segments written.", _PLACED),
    _sum(
        "busy_seconds",
        "s",
        "Time in the operator's function, of all instances together; where Spark SQL does the work, the time of its "
        "last stage's tasks.",
        _PLACED,
    ),
    _sum("cpu_seconds", "s", "CPU time of the instances; not measured where Spark SQL does the work.", _PLACED),
    _sum(
        "waiting_input_seconds",
        "s",
        "Time in which instances asked for work and there was nothing to hand out: no rows, or so few that they "
        "lingered for more; of all instances together. Measured only where bundles stand.",
        _PLACED,
    ),
    _sum(
        "waiting_room_seconds",
        "s",
        "Time in which instances asked for work and rows were there, and something held them back: a full output "
        "channel, a pause or a closed gate, or other instances that were too far behind; of all instances together. "
        "Measured only where bundles stand.",
        _PLACED,
    ),
    _sum("instance_seconds", "s", "Time that instances were there, of all instances together.", _PLACED),
    _sum(
        "batch_seconds",
        "s",
        "Time in batches, from the first question for rows to the publishing. Batches of bundles that stand may "
        "overlap: each counts as a whole.",
    ),
    _sum("waiting_seconds", "s", "Time between batches: waiting for rows, or for room in an output channel."),
    _sum(
        "overhead_seconds",
        "s",
        "Time in batches in which not even the busiest bundle was busy; not measured where Spark SQL does the work. Of "
        "bundles that stand, the time of the longest share of each batch: not the time in which a share waits to be "
        "published, because its bundle goes on meanwhile.",
    ),
    *(
        _sum(f"overhead_{part}", "s", f"Time of Spark's micro-batches that Spark spent {what}.")
        for part, what in OVERHEAD_PARTS.items()
    ),
    _sum("traffic_same_slot", "bytes", "Bytes read that the same slot had written.", _PLACED),
    _sum("traffic_same_machine", "bytes", "Bytes read that another slot of the same machine had written.", _PLACED),
    _sum("traffic_other_machine", "bytes", "Bytes read that another machine had written.", _PLACED),
    *(
        _sum(
            f"rows_from_{where}",
            "rows",
            f"Rows read from channels that {what}. Each counts once for a bundle; not measured where Spark SQL reads.",
            _PLACED,
        )
        for where, what in READ_FROM.items()
    ),
    *(
        _sum(f"bytes_from_{where}", "bytes", f"Bytes of the rows that {what}.", _PLACED)
        for where, what in READ_FROM.items()
    ),
    _sum(
        "bytes_over_link",
        "bytes",
        "Bytes that came over the machine's link for these rows, as they came: with the schemas of their parts. Where "
        "Spark SQL reads, by the sizes of the segments.",
        _PLACED,
    ),
    *(
        _sum(
            f"bytes_{way}_driver",
            "bytes",
            f"Bytes of the messages {what}, where the driver is on another machine; not measured in Spark's "
            "micro-batches, where Spark carries them.",
            _PLACED,
        )
        for way, what in {"from": "that give bundles their work", "to": "by which bundles report"}.items()
    ),
    _sum(
        "bytes_shuffled",
        "bytes",
        "Bytes that Spark's shuffle brought from other machines, compressed, as Spark counts them once a sampling "
        "interval; only where Spark SQL does the work. How they are shared out among slots is that of a newest batch.",
        _PLACED,
    ),
    # What machines use that are really apart
    _sum("machine_cpu_seconds", "s", "CPU time of the work on a machine, by its control group.", _MACHINE),
    _sum("machine_core_seconds", "s", "CPU time that a machine has: its cores times the time.", _MACHINE),
    _sum(
        "machine_throttled_seconds", "s", "Time in which work of a machine was held back for want of cores.", _MACHINE
    ),
    _sum("machine_received", "bytes", "Bytes that came over a machine's link, by its interface.", _MACHINE),
    _sum("machine_sent", "bytes", "Bytes that left over a machine's link, by its interface.", _MACHINE),
    _sum("machine_link_bytes", "bytes", "Bytes that a machine's link can carry each way in the time.", _MACHINE),
    # Levels
    _max("instances", "instances", "Instances, as placed.", _PLACED),
    _max("backlog_rows", "rows", "Rows that wait in front of the operator.", _WAITING),
    _max("backlog_bytes", "bytes", "Bytes that wait in front of the operator.", _WAITING),
    _max("backlog_age", "s", "Age of the oldest row that waits, since it came into the topology.", _WAITING),
    _max("unmet_rows", "rows", "Rows that are due at a source and not emitted: demand that is not met.", (Of.SOURCE,)),
    _max("worker_memory", "bytes", "Resident memory of the worker processes that ran its bundles.", _PLACED),
    _max("executor_memory", "bytes", "Resident memory of the slot's executor, without its worker processes.", _PLACED),
    _max("state_rows", "rows", "Rows of state, of all tasks of a keyed operator."),
    _max("state_bytes", "bytes", "Memory or disk that the state takes, of all tasks of a keyed operator."),
    _max("machine_memory_bytes", "bytes", "Memory of the work on a machine, by its control group.", _MACHINE),
    _max("machine_memory_limit", "bytes", "Memory that the work on a machine may have.", _MACHINE),
    # End to end
    Metric(
        "latency",
        "sketch",
        "Time from when a row was due at its source to when its batch was published at the sink; for a result that "
        "waited in a window, the time from when the rows of that window were due. It is kept as a DDSketch, with a "
        "relative error of at most 1% in every quantile.",
        Fold.MERGE,
        (Of.SINK,),
    ),
    # What follows from them
    _derived("rate", "rows/s", "Rows executed a second; of a sink, its throughput. Of a stream: rows read.", _ANY),
    _derived("emit_rate", "rows/s", "Rows emitted a second.", _ANY),
    _derived(
        "input_rate",
        "rows/s",
        "Rows a second that its producers emit on the streams to it; of a source, the rows a second that are due.",
    ),
    _derived("capacity", "rows/s", "Rows that an instance executes in a second of being busy: its true rate.", _PLACED),
    _derived("utilisation", "share", "Time that an instance is busy.", _PLACED),
    _derived("cpu_utilisation", "share", "CPU time of an instance; of a slot and a machine: of its cores.", _PLACED),
    _derived(
        "waiting_input",
        "share",
        "Time that an instance waits for input. What is left beside this, `waiting_room` and `utilisation`, an "
        "instance reads, writes and tells, or waits for another operator of its chain.",
        _PLACED,
    ),
    _derived("waiting_room", "share", "Time that an instance waits for room: rows are there, and held back.", _PLACED),
    _derived("batch_duration", "s", "Time of one batch, on average."),
    _derived(
        "share_duration",
        "s",
        "The part of `batch_duration` in which a bundle had its share, on average of the longest share of each batch. "
        "Where bundles stand, a share may wait for its bundle before that, and to be published after it.",
    ),
    _derived("batch_overhead", "s", "The part of `share_duration` in which not even the busiest bundle was busy."),
    _derived("backlog_growth", "rows/s", "Rows by which the backlog grows a second; below 0: it shrinks.", _WAITING),
    _derived("latency_mean", "s", "Latency on average.", (Of.SINK,)),
    _derived("latency_p50", "s", "Latency that half of the rows stay below.", (Of.SINK,)),
    _derived("latency_p90", "s", "Latency that 90% of the rows stay below.", (Of.SINK,)),
    _derived("latency_p99", "s", "Latency that 99% of the rows stay below.", (Of.SINK,)),
    _derived("machine_cpu", "share", "Share of its cores that a machine used, by its control group.", _MACHINE),
    _derived("machine_memory", "share", "Share of its memory that a machine has in use, by its group.", _MACHINE),
    _derived("machine_link", "share", "Share of its link that the busier direction used, by its interface.", _MACHINE),
    _derived(
        "machine_throttled",
        "s/s",
        "Time in which work of a machine was held back because the machine had used up its cores.",
        _MACHINE,
    ),
    _derived("traffic", "bytes/s", "Bytes a second from the slot (machine) that wrote them to the one that read them."),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _LIST}
