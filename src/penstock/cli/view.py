"""What is shown of a run at one moment: plain values, drawn as a table or as a line."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.monitor.live import Latency
from penstock.topology.definition import Operator, Sink, Source

if TYPE_CHECKING:  # what another process runs is shown without loading Spark
    from penstock.engine.runtime import Run


@dataclass(frozen=True)
class OperatorView:
    name: str
    kind: str
    #: Slot -> instances.
    places: dict[str, int]
    #: Rows a second; None where there is no such side: a source reads no stream, a sink writes none.
    rows_in: float | None
    rows_out: float | None
    backlog: int
    batch_seconds: float | None
    bad_rows: int
    throttled: bool
    #: Sinks only.
    latency: Latency | None

    @property
    def instances(self) -> int:
        return sum(self.places.values())


@dataclass(frozen=True)
class View:
    topology: str
    cluster: str
    elapsed: float
    #: How long it is to run; None is until it ends or is stopped.
    seconds: float | None
    operators: tuple[OperatorView, ...]
    unplaced_because: str
    #: What a stop waits for; empty while it runs.
    stopping: str = ""

    @property
    def throttled(self) -> list[str]:
        return [one.name for one in self.operators if one.throttled and one.kind == "source"]


def view_of(run: Run, cluster: str, seconds: float | None, stopping: str = "") -> View:
    return View(
        topology=run.definition.name,
        cluster=cluster,
        elapsed=time.time() - run.started_at,
        seconds=seconds,
        operators=tuple(_operator(run, operator) for operator in run.definition.operators),
        unplaced_because=run.host.unplaced_because,
        stopping=stopping,
    )


def view_from(status: Mapping[str, Any]) -> View:
    """The same of a run in another process, from its status."""
    latencies = {sink["name"]: Latency(sink["latency_p50"], sink["latency_p99"]) for sink in status["sinks"]}
    return View(
        topology=status["topology"],
        cluster=status["cluster"],
        elapsed=status["seconds"],
        seconds=None,
        operators=tuple(
            OperatorView(
                name=one["name"],
                kind=one["kind"],
                places=one["placement"],
                rows_in=one["rows_in_per_second"],
                rows_out=one["rows_out_per_second"],
                backlog=one["backlog"],
                batch_seconds=one["batch_seconds"],
                bad_rows=one["bad_rows"],
                throttled=one["throttled"],
                latency=latencies.get(one["name"]),
            )
            for one in status["operators"]
        ),
        unplaced_because=status["unplaced"] or "",
        stopping="" if status["state"] == "running" else status["state"],
    )


def waiting_rows(run: Run) -> int:
    """Rows that are on their way: what a stop that drains waits for."""
    return sum(run.backlog(one.name) for one in run.definition.operators if not isinstance(one, Source))


def _operator(run: Run, operator: Operator) -> OperatorView:
    name, rates = operator.name, run.statistics.rates(operator.name)
    return OperatorView(
        name=name,
        kind=operator.kind,
        places={slot.name: count for slot, count in sorted(run.placement.of(name).items())},
        rows_in=None if isinstance(operator, Source) else rates.rows_in,
        rows_out=None if isinstance(operator, Sink) else rates.rows_out,
        backlog=run.backlog(name),
        batch_seconds=rates.batch_seconds,
        bad_rows=run.statistics.bad_rows(name),
        throttled=run.query(name).intake.throttled,
        latency=run.statistics.recent_latency(name) if isinstance(operator, Sink) else None,
    )
