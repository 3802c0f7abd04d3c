"""History as it is asked for and answered: which metrics, of whom, from when to when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.errors import PenstockError
from penstock.monitor.latency import LatencySketch
from penstock.monitor.metric import METRICS, Fold
from penstock.monitor.series import By, SeriesKey
from penstock.monitor.unknown import largest, ratio

Row = Mapping[str, Any]

#: As many points a series, about, unless something else is asked for.
POINTS = 500


def _share_of_instances(column: str, row: Row) -> float | None:
    return ratio(row[column], row["instance_seconds"])


#: What is worked out from stored figures: the columns it takes, and how.
_DERIVED: Mapping[str, tuple[tuple[str, ...], Callable[[Row], float | None]]] = {
    "rate": (("rows", "seconds"), lambda row: ratio(row["rows"], row["seconds"])),
    "emit_rate": (("rows_out", "seconds"), lambda row: ratio(row["rows_out"], row["seconds"])),
    "capacity": (("rows", "busy_seconds"), lambda row: ratio(row["rows"] or None, row["busy_seconds"])),
    "utilisation": (
        ("busy_seconds", "instance_seconds"),
        lambda row: ratio(row["busy_seconds"], row["instance_seconds"]),
    ),
    "cpu_utilisation": (
        ("cpu_seconds", "instance_seconds"),
        lambda row: ratio(row["cpu_seconds"], row["instance_seconds"]),
    ),
    **{
        f"waiting_{what}": (
            (f"waiting_{what}_seconds", "instance_seconds"),
            partial(_share_of_instances, f"waiting_{what}_seconds"),
        )
        for what in ("input", "room")
    },
    "batch_duration": (("batch_seconds", "batches"), lambda row: ratio(row["batch_seconds"], row["batches"])),
    "batch_overhead": (("overhead_seconds", "batches"), lambda row: ratio(row["overhead_seconds"], row["batches"])),
    "machine_cpu": (
        ("machine_cpu_seconds", "machine_core_seconds"),
        lambda row: ratio(row["machine_cpu_seconds"], row["machine_core_seconds"]),
    ),
    "machine_memory": (
        ("machine_memory_bytes", "machine_memory_limit"),
        lambda row: ratio(row["machine_memory_bytes"], row["machine_memory_limit"]),
    ),
    "machine_link": (
        ("machine_received", "machine_sent", "machine_link_bytes"),
        lambda row: ratio(largest(row["machine_received"], row["machine_sent"]), row["machine_link_bytes"]),
    ),
    "machine_throttled": (
        ("machine_throttled_seconds", "seconds"),
        lambda row: ratio(row["machine_throttled_seconds"], row["seconds"]),
    ),
    "latency_mean": (("latency",), lambda row: row["latency"] and row["latency"].mean),
    "latency_p50": (("latency",), lambda row: row["latency"] and row["latency"].quantile(0.5)),
    "latency_p90": (("latency",), lambda row: row["latency"] and row["latency"].quantile(0.9)),
    "latency_p99": (("latency",), lambda row: row["latency"] and row["latency"].quantile(0.99)),
}

#: The metrics that have a history.
WITH_HISTORY = tuple(
    name for name, metric in METRICS.items() if metric.fold in (Fold.SUM, Fold.MAX) or name in _DERIVED
)


@dataclass(frozen=True)
class HistoryQuery:
    """Times in seconds since the epoch, [since, until)."""

    metrics: tuple[str, ...]
    since: float
    until: float
    by: By = "operator"
    #: One operator (for streams: the one that reads them); all of them if it is None. Machines have none.
    operator: str | None = None
    points: int = POINTS

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in WITH_HISTORY:
                known = ", ".join(WITH_HISTORY)
                raise PenstockError("UNKNOWN_METRIC", f'there is no history of "{name}".', f"There is one of: {known}.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the statistics table that the answer takes."""
        needed = {"seconds": None}
        for name in self.metrics:
            needed |= dict.fromkeys(_DERIVED[name][0] if name in _DERIVED else (name,))
        return tuple(needed)


@dataclass
class SeriesHistory:
    """What was measured of one operator, slot, stream or machine: parallel lists, oldest first. An interval that is
    missing was not observed; a value that is None was not measured."""

    key: SeriesKey
    #: Where each interval starts, and how many seconds of it were observed.
    times: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        key = self.key
        names = {"operator": key.operator, "slot": key.slot or None, "stream": key.stream or None, "machine": None}
        if key.by == "machine":
            names |= {"operator": None, "slot": None, "machine": key.slot}
        return names | {
            "times": self.times,
            "seconds": self.seconds,
            "values": self.values,
        }


def answer(query: HistoryQuery, rows: Iterable[tuple[SeriesKey, int, tuple[Any, ...]]]) -> list[SeriesHistory]:
    """From (series, milliseconds, the query's columns) in the order of time to one history a series."""
    found: dict[SeriesKey, SeriesHistory] = {}
    # Looked up once: a day of history is many rows.
    readers = [(name, *_reader(name)) for name in query.metrics]
    columns = query.columns
    for key, time, values in rows:
        history = found.get(key)
        if history is None:
            history = found[key] = SeriesHistory(key, values={name: [] for name in query.metrics})
        row = dict(zip(columns, values, strict=True))
        if row.get("latency") is not None:
            row["latency"] = LatencySketch.parse(row["latency"])
        history.times.append(time / 1000)
        history.seconds.append(row["seconds"])
        for name, read, column in readers:
            history.values[name].append(row[column] if read is None else read(row))
    return [found[key] for key in sorted(found)]


def _reader(name: str) -> tuple[Callable[[Row], float | None] | None, str]:
    return (_DERIVED[name][1], "") if name in _DERIVED else (None, name)
