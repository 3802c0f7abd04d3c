"""The display of a topology that runs in this process."""

from __future__ import annotations

from penstock.cli.display import Display, OperatorDisplay
from penstock.clock import run_time
from penstock.running import RunningTopology
from penstock.topology.definition import Operator, Sink, Source


def display_of(run: RunningTopology, cluster: str, seconds: float | None, stopping: str = "") -> Display:
    return Display(
        topology=run.definition.name,
        cluster=cluster,
        elapsed=run_time() - run.started_at,
        seconds=seconds,
        operators=tuple(_operator(run, operator) for operator in run.definition.operators),
        unplaced_because=run.unplaced_because,
        stopping=stopping,
    )


def waiting_rows(run: RunningTopology) -> int:
    """How many rows are on their way to the sinks: a stop that drains waits for them."""
    return sum(run.backlog(one.name) for one in run.definition.operators if not isinstance(one, Source))


def _operator(run: RunningTopology, operator: Operator) -> OperatorDisplay:
    name, rates = operator.name, run.statistics.rates(operator.name)
    latency = run.statistics.recent_latency(name) if isinstance(operator, Sink) else None
    return OperatorDisplay(
        name=name,
        kind=operator.kind,
        places={slot.name: count for slot, count in sorted(run.placements.planned.of(name).items())},
        rows_in=None if isinstance(operator, Source) else rates.rows_in,
        rows_out=None if isinstance(operator, Sink) else rates.rows_out,
        backlog=run.backlog(name),
        batch_seconds=rates.batch_seconds,
        bad_rows=run.statistics.bad_rows(name),
        late_rows=run.statistics.late_rows(name),
        throttled=run.throttled(name),
        latency_p50=latency.p50 if latency else None,
        latency_p99=latency.p99 if latency else None,
    )
