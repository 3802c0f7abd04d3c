"""A running topology at one moment, for people: what runs where, how fast, what waits. Strategies read the snapshot."""

from __future__ import annotations

import os
from typing import Any

from penstock.clock import run_time, shown
from penstock.monitor.snapshot import OperatorSnapshot, Snapshot
from penstock.running import RunningTopology
from penstock.topology.definition import Keyed, Operator, Sink, Source


def status_of(run: RunningTopology, cluster_kind: str) -> dict[str, Any]:
    """Rates and latency are those of the last ten seconds. Utilisation, what instances wait for, and capacity are
    those of the sliding window."""
    snapshot, usable = run.snapshot(), run.usable_slots
    return {
        "topology": run.definition.name,
        "state": "paused" if run.paused else "running",
        "pid": os.getpid(),
        "cluster": cluster_kind,
        "started_at": shown(run.started_at),
        "seconds": run_time() - run.started_at,
        "machines": [
            {
                "name": machine.name,
                "used": use.as_json() if (use := snapshot.machine_uses.get(machine.name)) is not None else None,
                "slots": [
                    {"name": slot.name, "cores": slot.cores, "usable": slot in usable, **_of_slot(slot.name, snapshot)}
                    for slot in machine.slots
                ],
            }
            for machine in run.cluster.machines
        ],
        "operators": [_operator(run, operator, snapshot) for operator in run.definition.operators],
        "sinks": [_sink(run, sink) for sink in run.definition.sinks],
        "complete": snapshot.complete,
        "as_planned": run.placements.requested == run.placements.planned,
        "unplaced": run.unplaced_because or None,
    }


def _of_slot(name: str, snapshot: Snapshot) -> dict[str, Any]:
    known = snapshot.slots.get(name)
    if known is None:
        return {"instances": 0, "utilisation": None, "cpu_utilisation": None}
    return {
        "instances": known.instances,
        "utilisation": known.utilisation,
        "cpu_utilisation": known.cpu_utilisation,
    }


def _operator(run: RunningTopology, operator: Operator, snapshot: Snapshot) -> dict[str, Any]:
    name, placement = operator.name, run.placements.requested
    rates, measured = run.statistics.rates(name), snapshot.operators.get(name, OperatorSnapshot(name, operator.kind, 0))
    rows_in, rows_out = run.statistics.totals(name)
    is_source, is_sink = isinstance(operator, Source), isinstance(operator, Sink)
    return {
        "name": name,
        "kind": operator.kind,
        "instances": placement.total(name),
        "placement": {slot.name: count for slot, count in sorted(placement.of(name).items())},
        "chain": list(snapshot.chain_of(name)),
        "tasks": [slot.name for slot in placement.tasks[name]] if name in placement.tasks else None,
        "rows_in_per_second": None if is_source else rates.rows_in,
        "rows_out_per_second": None if is_sink else rates.rows_out,
        "rows_in": None if is_source else rows_in,
        "rows_out": None if is_sink else rows_out,
        "capacity_per_instance": measured.capacity,
        "utilisation": measured.utilisation,
        "waiting_input": measured.waiting_input,
        "waiting_room": measured.waiting_room,
        "batch_seconds": rates.batch_seconds,
        "backlog": run.backlog(name),
        "bad_rows": run.statistics.bad_rows(name),
        "late_rows": run.statistics.late_rows(name) if isinstance(operator, Keyed) else None,
        "state": [one.as_json() for one in run.kept(name)] if isinstance(operator, Keyed) else None,
        "throttled": run.throttled(name),
    }


def _sink(run: RunningTopology, sink: Sink) -> dict[str, Any]:
    latency = run.statistics.recent_latency(sink.name)
    return {
        "name": sink.name,
        "throughput": run.statistics.rates(sink.name).rows_in,
        "latency_p50": latency.p50 if latency else None,
        "latency_p99": latency.p99 if latency else None,
    }
