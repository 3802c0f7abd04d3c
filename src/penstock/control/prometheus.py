"""A status as Prometheus reads it. Figures that were not measured are left out: an absent series is not 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    "batch_seconds": ("batch_seconds", "Mean length of a micro-batch."),
    "backlog": ("backlog_rows", "Rows that wait in front of it."),
}
_COUNTERS = {
    "rows_in": ("rows_in", "Rows read since the start."),
    "rows_out": ("rows_out", "Rows emitted since the start."),
    "bad_rows": ("bad_rows", "Rows that its function could not handle, since the start."),
}


def exposition(status: dict[str, Any]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Families(lambda: _families(status)))
    return generate_latest(registry)


class _Families:
    """What the library calls a collector."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self.collect = collect


def _families(status: dict[str, Any]) -> Iterator[Metric]:
    topology = status["topology"]
    yield _gauge(
        "up", "1 while it runs, 0 while it is paused.", [], [((), float(status["state"] == "running"))], topology
    )
    machines = [((), float(len(status["machines"])))]
    yield _gauge("machines", "Machines of the cluster.", [], machines, topology)
    operators = [((one["name"],), one) for one in status["operators"]]
    for field, (name, meaning) in _GAUGES.items():
        values = [(labels, one[field]) for labels, one in operators]
        yield _gauge(f"operator_{name}", meaning, ["operator"], values, topology)
    for field, (name, meaning) in _COUNTERS.items():
        counter = CounterMetricFamily(f"penstock_operator_{name}", meaning, labels=["topology", "operator"])
        for (operator,), one in operators:
            if one[field] is not None:
                counter.add_metric([topology, operator], one[field])
        yield counter
    slots = [((machine["name"], slot["name"]), slot) for machine in status["machines"] for slot in machine["slots"]]
    for field in ("instances", "utilisation", "cpu_utilisation"):
        values = [(labels, slot[field]) for labels, slot in slots]
        yield _gauge(f"slot_{field}", f"Of a slot: {field}.", ["machine", "slot"], values, topology)
    sinks = [((one["name"],), one) for one in status["sinks"]]
    throughput = [(labels, one["throughput"]) for labels, one in sinks]
    yield _gauge("sink_throughput_rows_per_second", "Over the last ten seconds.", ["sink"], throughput, topology)
    latency = [((*labels, f"0.{q}"), one[f"latency_p{q}"]) for labels, one in sinks for q in (50, 99)]
    yield _gauge("sink_latency_seconds", "From source to sink.", ["sink", "quantile"], latency, topology)


def _gauge(
    name: str, meaning: str, labels: list[str], values: list[tuple[tuple[str, ...], float | None]], topology: str
) -> Metric:
    family = GaugeMetricFamily(f"penstock_{name}", meaning, labels=["topology", *labels])
    for given, value in values:
        if value is not None:
            family.add_metric([topology, *given], value)
    return family
