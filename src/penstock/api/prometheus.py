"""A status as Prometheus reads it. Figures that were not measured are left out: an absent series is not 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["CONTENT_TYPE", "exposition"]

#: Field of an operator -> name and meaning.
_GAUGES = {
    "instances": ("instances", "Instances as placed now."),
    "rows_in_per_second": ("rows_in_per_second", "Rows read, over the last ten seconds."),
    "rows_out_per_second": ("rows_out_per_second", "Rows emitted, over the last ten seconds."),
    "capacity_per_instance": ("capacity_rows_per_second", "Rows per busy second of one instance."),
    "utilisation": ("utilisation_ratio", "Share of the time in which its instances are busy."),
    "waiting_input": ("waiting_input_ratio", "Share of the time in which its instances wait for rows."),
    "waiting_room": (
        "waiting_room_ratio",
        "Share of the time in which rows are there for its instances and held back.",
    ),
    "batch_seconds": ("batch_seconds", "Mean length of a batch."),
    "backlog": ("backlog_rows", "Rows that wait in front of it."),
}
_COUNTERS = {
    "rows_in": ("rows_in", "Rows read since the start."),
    "rows_out": ("rows_out", "Rows emitted since the start."),
    "bad_rows": ("bad_rows", "Rows that its function could not handle, since the start."),
    "late_rows": ("late_rows", "Rows that came too late for its watermark and were dropped, since the start."),
}
_OF_SLOTS = {
    "instances": ("instances", "Instances of all operators on it."),
    "utilisation": ("utilisation_ratio", "Share of the time in which its instances are busy."),
    "cpu_utilisation": ("cpu_utilisation_ratio", "Share of its cores that its instances use."),
}
#: Of machines that are really apart (a lab).
_OF_MACHINES = {
    "cpu": ("cpu_ratio", "Share of its cores that the work on it used."),
    "memory": ("memory_ratio", "Share of its memory that the work on it has."),
    "link": ("link_ratio", "Share of its link that was used, in the direction that was used more."),
    "throttled": ("throttled_ratio", "Seconds a second in which its work was held back for want of cores."),
    "received_bytes_per_second": ("received_bytes_per_second", "Bytes that came over its link."),
    "sent_bytes_per_second": ("sent_bytes_per_second", "Bytes that left over its link."),
}


def exposition(status: dict[str, Any]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Families(lambda: _families(status)))
    return generate_latest(registry)


class _Families:
    """What the library calls a collector."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self.collect = collect


def _kept(state: Sequence[dict[str, Any]] | None) -> float | None:
    return None if state is None else float(sum(one["rows"] for one in state))


def _families(status: dict[str, Any]) -> Iterator[Metric]:
    topology, operators, sinks = status["topology"], status["operators"], status["sinks"]
    slots = [{**slot, "machine": one["name"]} for one in status["machines"] for slot in one["slots"]]

    def gauge(name: str, meaning: str, values: Sequence[tuple[dict[str, str], float | None]]) -> Metric:
        labels = list(values[0][0]) if values else []
        family = GaugeMetricFamily(f"penstock_{name}", meaning, labels=["topology", *labels])
        for given, value in values:
            if value is not None:
                family.add_metric([topology, *given.values()], value)
        return family

    yield gauge("up", "1 while it runs, 0 while it is paused or stopping.", [({}, float(status["state"] == "running"))])
    yield gauge("machines", "Machines of the cluster.", [({}, float(len(status["machines"])))])
    for field, (name, meaning) in _GAUGES.items():
        yield gauge(f"operator_{name}", meaning, [({"operator": one["name"]}, one[field]) for one in operators])
    state = [({"operator": one["name"]}, _kept(one["state"])) for one in operators]
    yield gauge("operator_state_rows", "Rows of state that a keyed operator keeps.", state)
    for field, (name, meaning) in _COUNTERS.items():
        counter = CounterMetricFamily(f"penstock_operator_{name}", meaning, labels=["topology", "operator"])
        for one in operators:
            if one[field] is not None:
                counter.add_metric([topology, one["name"]], one[field])
        yield counter
    for field, (name, meaning) in _OF_SLOTS.items():
        values = [({"machine": one["machine"], "slot": one["name"]}, one[field]) for one in slots]
        yield gauge(f"slot_{name}", meaning, values)
    apart = [one for one in status["machines"] if one.get("used") is not None]
    for field, (name, meaning) in _OF_MACHINES.items():
        yield gauge(f"machine_{name}", meaning, [({"machine": one["name"]}, one["used"][field]) for one in apart])
    throughput = [({"sink": one["name"]}, one["throughput"]) for one in sinks]
    yield gauge("sink_throughput_rows_per_second", "Rows that reach it, over the last ten seconds.", throughput)
    latency = [({"sink": one["name"], "quantile": f"0.{q}"}, one[f"latency_p{q}"]) for one in sinks for q in (50, 99)]
    yield gauge("sink_latency_seconds", "From source to sink, over the last ten seconds.", latency)
