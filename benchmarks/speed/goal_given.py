"""A goal on the command line of a script, as rows/s at the sinks; and what became of it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock import Goal
from penstock.api.steered_topology import steered
from penstock.autoscaler.balance import balance_of
from penstock.monitor.events import EventKind
from penstock.running import RunningTopology


def steered_to(run: RunningTopology, goal: float | None) -> AbstractContextManager[object]:
    """Steer a run until the block is left, as `penstock run` does, and have a controller hold the goal. With 0 there is
    no goal and so no controller; with None the run is not steered."""
    if goal is None:
        return nullcontext()
    return steered(run, "local", lambda drain: None, Goal(throughput=goal) if goal else None)


def what_became(run: RunningTopology, goal: float | None) -> dict[str, Any]:
    """What the window before this moment shows, and what the controller has done so far; empty if nobody steers."""
    if goal is None:
        return {}
    snapshot = run.snapshot()
    told = [event for event in run.events.since(0) if event.subject == "controller"]
    return {
        "at_the_sinks": balance_of(snapshot).throughput,
        "longest_chain": max(map(len, snapshot.chains), default=1),
        # Before a window is complete, a controller has nothing to decide on.
        "decided": any(event.kind is EventKind.DECISION for event in told),
        "operations": len(run.decisions.since()),
        "told": [f"{event.kind}: {event.reason}" for event in told],
    }
