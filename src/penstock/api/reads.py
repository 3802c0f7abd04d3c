"""Everything that can be read of a running topology. Answers are plain enough for JSON."""

from __future__ import annotations

from typing import Any

from penstock.api.bounds import MOST_LISTED
from penstock.api.history_request import HistoryRequest
from penstock.api.status import status_of
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.neighbours import ALONE, Neighbours
from penstock.autoscaler.operations import Operations
from penstock.autoscaler.shapes import machine_as_json, migrated_as_json, placement_as_json
from penstock.clock import meant, shown, wall_time
from penstock.errors import PenstockError
from penstock.monitor.history import HistoryQuery
from penstock.running import RunningTopology
from penstock.strategies.mapping.chains import why_apart
from penstock.strategies.rules import Rules
from penstock.strategies.stela.explanation import explained
from penstock.topology import drawing

Json = dict[str, Any]


class Reads:
    """The reads of one running topology. Any thread may call them; no read changes anything."""

    def __init__(
        self, run: RunningTopology, cluster_kind: str, operations: Operations, neighbours: Neighbours = ALONE
    ) -> None:
        self._run = run
        self._kind = cluster_kind
        self.operations = operations
        self._neighbours = neighbours

    def topology(self) -> Json:
        """Operators and streams as the user declared them."""
        return drawing.as_json(self._run.definition)

    def status(self) -> Json:
        """What runs where, how fast each operator is, how many rows wait, the operation that is first in line, and the
        other topologies on the cluster (null if the cluster is not shared)."""
        first, seen = self.operations.first, self._neighbours.seen
        operation = None if first is None else first.as_json(self.operations.step())
        neighbours = None if seen is None else [one.as_json() for one in seen]
        answer = status_of(self._run, self._kind) | {"operation": operation, "neighbours": neighbours}
        return answer | {"state": "stopping"} if self.operations.closing else answer

    def snapshot(self) -> Json:
        """The snapshot that strategies decide on."""
        return self._run.snapshot().as_json()

    def placement(self) -> Json:
        """The planned placement, what Spark is asked for on the slots that are usable now, and what Spark did in the
        newest batches."""
        run = self._run
        placements = run.placements
        seen = {one.name: placements.observed(one.name) for one in run.definition.operators}
        return {
            "planned": placement_as_json(placements.planned),
            "requested": placement_as_json(placements.requested),
            "observed": {name: None if one is None else one.as_json() for name, one in seen.items()},
            "machines": [machine_as_json(machine) for machine in run.cluster.machines],
        }

    def history(self, request: HistoryRequest) -> Json:
        """What was measured over time, one series for each operator, slot, stream or machine."""
        if request.operator is not None:
            self._run.definition.operator(request.operator)
        since, until = request.since, wall_time() if request.until is None else request.until
        if not since < until:
            raise PenstockError(
                "BAD_REQUEST", f"since ({since}) is not before until ({until}).", "Give an earlier since."
            )
        series = self._run.history(
            HistoryQuery(
                tuple(request.metrics),
                self._noted_at(since),
                self._noted_at(until),
                request.by,
                request.operator,
                request.points,
            )
        )
        if series is None:
            raise PenstockError("NO_HISTORY", "this run keeps no history.", "Run it with the setting monitoring=on.")
        for one in series:
            one.times = [shown(at) if at >= self._run.started_at else at for at in one.times]
        return {"since": since, "until": until, "by": request.by, "series": [one.as_json() for one in series]}

    def _noted_at(self, time: float) -> float:
        """The time under which the statistics store has what was measured at a time of the wall clock: in run time for
        this run, and as it was written for an earlier run."""
        noted = meant(time)
        return noted if noted >= self._run.started_at else min(noted, time)

    def events(self, after: int = 0, limit: int = 1000, wait: float = 0.0) -> Json:
        """The first events whose id is above `after`. If there are none yet, the call waits for one, up to `wait`
        seconds. `next` is the id to give as `after` in the next call."""
        log = self._run.events
        if wait > 0:
            log.wait(after, wait)
        found = log.since(after, min(limit, MOST_LISTED))
        return {"events": [event.as_json() for event in found], "next": found[-1].id if found else after}

    def decisions(self, after: int = 0, limit: int = 1000) -> Json:
        """The first decisions whose id is above `after`: what was measured before each, what was expected of it, what
        was measured after it, and the verdict. `next` is the id to give as `after` in the next call."""
        found = self._run.decisions.since(after, min(limit, MOST_LISTED))
        return {"decisions": [one.as_json() for one in found], "next": found[-1].id if found else after}

    def migrations(self, after: int = 0, limit: int = 1000) -> Json:
        """The first changes whose id is above `after`, of those that moved state lately: for every operator what was
        moved, how long each phase took, and how the other operators flowed meanwhile. `next` is the id to give as
        `after` in the next call."""
        found = self._run.changes.migrations.since(after, min(limit, MOST_LISTED))
        return {"migrations": [migrated_as_json(one) for one in found], "next": found[-1].id if found else after}

    def explain(self, alpha: float | None = None) -> Json:
        """The load as Stela sees it: input, processing rate, congestion and ETP of every operator, and ETPSum of every
        machine. For every stream also whether its two operators run as one chain, or why they do not, and for every
        keyed operator why Spark shuffles its rows, or that it does not."""
        snapshot = self._run.snapshot()
        load = measured_load(snapshot, on_demand=True)
        rules = Rules.of(self._run.settings, alpha)
        seen = explained(load, snapshot.placement, snapshot.cluster, rules).as_json()
        apart = why_apart(snapshot.definition, snapshot.placement, snapshot.chains)
        streams = [{"name": name, "chained": not why, "reason": why} for name, why in apart.items()]
        shuffles = [
            {"operator": name, "shuffled": bool(why), "reason": why} for name, why in self._run.shuffles.items()
        ]
        return {**seen, "streams": streams, "shuffles": shuffles}

    def all_operations(self) -> Json:
        """The operations that were asked for lately, the oldest first."""
        step = self.operations.step()
        return {"operations": [one.as_json(step) for one in self.operations.all()]}

    def operation(self, number: int, wait: float = 0.0) -> Json:
        """One operation. The call waits for its end, up to `wait` seconds."""
        operation = self.operations.get(number)
        if wait > 0:
            self.operations.wait(operation, wait)
        return operation.as_json(self.operations.step())
