"""The summary of a run, taken at its end while everything still runs: the values of the last page and of --json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.clock import run_time
from penstock.monitor.kept_state import KeptState, left_inside, may_give_more
from penstock.monitor.latency import Latency
from penstock.monitor.statistics import OperatorRates
from penstock.running import Places, RunningTopology
from penstock.topology.definition import Sink, Source


@dataclass(frozen=True)
class OperatorSummary:
    name: str
    kind: str
    instances: int
    rows_in: int
    rows_out: int
    rates: OperatorRates
    bad_rows: int
    backlog: int
    places: Places
    #: Sinks only.
    latency: Latency | None = None
    #: Keyed operators only: rows that came too late for a watermark, and what is kept inside.
    late_rows: int = 0
    kept: tuple[KeptState, ...] = ()
    #: Whether what is kept inside may not have given all of its results.
    may_give_more: bool = False

    def as_json(self) -> dict[str, Any]:
        places = self.places
        described = {
            "name": self.name,
            "kind": self.kind,
            "instances": self.instances,
            "placement": {one.slot: one.instances for one in places.bundles},
            "executors": {one.slot: one.planned for one in places.bundles},
            "observed": {place: list(seen) for place, seen in (places.reported or {}).items()},
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rows_in_per_second": round(self.rates.rows_in, 1),
            "rows_out_per_second": round(self.rates.rows_out, 1),
            "batches": self.rates.batches,
            "bad_rows": self.bad_rows,
            "late_rows": self.late_rows if self.kind == "keyed" else None,
            "state": [one.as_json() for one in self.kept] if self.kind == "keyed" else None,
            "backlog": self.backlog,
            "differences": places.differences(),
        }
        if places.tasks:
            described["tasks"] = [
                {
                    "task": one.task,
                    "planned": one.slot,
                    "executor": one.planned,
                    "observed": list(one.observed),
                    "location": one.location,
                }
                for one in places.tasks
            ]
        return described


@dataclass(frozen=True)
class Summary:
    topology: str
    cluster: str
    #: Machine -> slots.
    machines: Mapping[str, int]
    seconds: float
    operators: tuple[OperatorSummary, ...]
    #: Everything that the sources emitted has reached the sinks.
    drained: bool
    unplaced_because: str = ""
    #: Whether the next run can go on from where this one stopped.
    resumable: bool = False
    #: Operators of which it is not known whether they hold results that are not emitted yet.
    unknown_inside: tuple[str, ...] = ()
    #: Why the end could not be written to the catalog; empty if it could.
    unwritten_because: str = ""

    @property
    def left_inside(self) -> dict[str, int]:
        """By operator, results that are not emitted yet: those of windows that wait for their watermark."""
        return left_inside({one.name: one.kept for one in self.operators})

    @property
    def may_give_more(self) -> list[str]:
        """Operators of which nobody but the user knows whether all results of what they keep are emitted."""
        return [one.name for one in self.operators if one.may_give_more]

    @property
    def differences(self) -> list[str]:
        return [f"{one.name}: {text}" for one in self.operators for text in one.places.differences()]

    @property
    def as_planned(self) -> bool | None:
        """Whether everything ran where the plan says. None if that is not known: slots are logical, or Spark
        chooses."""
        if self.unplaced_because or not any(one.places.known for one in self.operators):
            return None
        return not self.differences

    @property
    def sinks(self) -> list[OperatorSummary]:
        return [one for one in self.operators if one.kind == "sink"]

    def as_json(self) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "cluster": self.cluster,
            "machines": dict(self.machines),
            "seconds": round(self.seconds, 1),
            "operators": [one.as_json() for one in self.operators],
            "sinks": [
                {
                    "name": one.name,
                    "rows_per_second": round(one.rates.rows_in, 1),
                    "latency_p50": one.latency.p50 if one.latency else None,
                    "latency_p99": one.latency.p99 if one.latency else None,
                }
                for one in self.sinks
            ],
            "drained": self.drained,
            "left_inside": self.left_inside,
            "left_inside_unknown": list(self.unknown_inside),
            "unplaced": self.unplaced_because or None,
            "unwritten": self.unwritten_because or None,
            "as_planned": self.as_planned,
        }


def nothing_ran(topology: str, cluster: str) -> Summary:
    """The summary of a run that was stopped before it had begun."""
    return Summary(topology, cluster, {}, 0.0, (), drained=True)


def summarize(run: RunningTopology, cluster: str, drained: bool) -> Summary:
    """The summary of a run that has not been stopped yet."""
    return Summary(
        topology=run.definition.name,
        cluster=cluster,
        machines={machine.name: len(machine.slots) for machine in run.cluster.machines},
        seconds=run_time() - run.started_at,
        operators=tuple(_operator(run, operator.name) for operator in run.definition.operators),
        drained=drained,
        unplaced_because=run.unplaced_because,
        resumable=not run.state.temporary,
        unknown_inside=tuple(run.unknown_inside()),
    )


def _operator(run: RunningTopology, name: str) -> OperatorSummary:
    operator, statistics = run.definition.operator(name), run.statistics
    (rows_in, rows_out), rates = statistics.totals(name), statistics.whole_run(name)
    if isinstance(operator, Source):
        # A source is where rows begin: it emits what it makes or reads, and no stream leads into it.
        rows_in, rates = 0, dataclasses.replace(rates, rows_in=0.0)
    return OperatorSummary(
        name=name,
        kind=operator.kind,
        instances=run.placements.planned.total(name),
        rows_in=rows_in,
        rows_out=rows_out,
        rates=rates,
        bad_rows=statistics.bad_rows(name),
        backlog=run.backlog(name),
        places=run.placements.places(name),
        late_rows=statistics.late_rows(name),
        kept=(kept := run.kept(name)),
        may_give_more=may_give_more(operator, kept),
        latency=statistics.latency(name) if isinstance(operator, Sink) else None,
    )
