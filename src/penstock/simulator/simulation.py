"""A controller steers a fluid topology towards a goal, with the hands that it has in production; what happens is kept
as a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from penstock.api.steering import Steering
from penstock.autoscaler.autonomy import needs_no_goal
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Guard
from penstock.autoscaler.hands import controller_of
from penstock.autoscaler.loop import Controller
from penstock.autoscaler.operations import Operation
from penstock.clock import run_time
from penstock.plans.plan import AddMachine, RemoveMachine
from penstock.simulator.topology import STRIDE, FluidTopology
from penstock.strategies.mapping.chains import Chains

#: Operations are forgotten after a while; they are collected before that.
Instances = Mapping[str, int]


@dataclass(frozen=True)
class Moment:
    """The topology as it was, in seconds since the start and rows a second."""

    at: float
    offered: float
    throughput: float
    machines: int
    instances: Instances
    #: Rows that wait anywhere, also those that are due at sources.
    waiting: int
    #: The operators that run as one.
    chains: Chains = ()


@dataclass(frozen=True)
class Done:
    """An operation that is over."""

    id: int
    action: str
    state: str
    asked: float
    began: float
    ended: float
    #: How many machines more, and how many instances more of each operator.
    machines: int
    instances: Instances
    why: str


@dataclass
class Trace:
    """What happened, the oldest first."""

    moments: list[Moment] = field(default_factory=list)
    operations: list[Done] = field(default_factory=list)
    #: (when, kind, text).
    told: list[tuple[float, str, str]] = field(default_factory=list)

    def at(self, seconds: float) -> Moment:
        """The last moment that was seen up to this time."""
        return max((one for one in self.moments if one.at <= seconds), key=lambda one: one.at, default=self.moments[0])

    def between(self, start: float, stop: float) -> list[Moment]:
        return [one for one in self.moments if start <= one.at < stop]


class Simulation:
    """One fluid topology with one controller. Its clock must be installed."""

    def __init__(
        self, topology: FluidTopology, goal: Goal | None, strategy: str = "", guards: Sequence[Guard] = ()
    ) -> None:
        self.topology = topology
        self.trace = Trace()
        self._goal = goal
        self._strategy = strategy or topology.settings.strategy
        self._guards = guards
        self._pending: dict[int, Operation] = {}
        self._seen = 0
        topology.events.listen(lambda event: self._told(event.kind, f"{event.subject}: {event.reason}"))
        self._begin()
        self._every = topology.settings.sample_seconds if self.controller is None else self.controller.every
        self._stride = self._every
        topology.clock.every(self._pace, self._round)

    def _begin(self) -> None:
        """A driver begins: nothing is left of an earlier one but what it has kept."""
        self._seen, self._pending = 0, {}
        self.steering = Steering(self.topology, "simulated", lambda _: None)
        self._end = ExitStack()
        self._end.callback(self.steering.close)
        self.controller: Controller | None = None
        if self._goal is not None or needs_no_goal(self._strategy):
            self.controller = controller_of(self.topology, self.steering.desk, self._goal, self._strategy, self._guards)

    def restart(self, seconds: float = 60.0) -> None:
        """The driver ends, and another one begins so many seconds later: rows that are due meanwhile wait, and what was
        measured before is lost."""
        topology, paused = self.topology, self.topology.paused
        self.close()
        topology.pause()

        def begin() -> None:
            topology.pause(paused)
            topology.monitor.restart(run_time())
            self._begin()
            self._stride = self._every  # the first rounds come one after the other, whatever the last ones did

        topology.clock.later(seconds, begin, "restart")

    def run(self, seconds: float) -> Trace:
        self.topology.clock.sleep(seconds)
        self._look()
        return self.trace

    def close(self) -> None:
        self._collect()
        self.controller = None
        self._end.close()

    def _pace(self) -> float:
        """The seconds to the next round: longer ones while nothing changes and nothing is decided."""
        every, topology = self._every, self.topology
        if not topology.steady or topology.changes.step:
            self._stride = every
        else:
            self._stride = min(self._stride * 2, STRIDE, max(topology.steady_until - run_time(), every))
        return self._stride // every * every

    def _round(self) -> None:
        if self.controller is not None:
            self.controller.step()
        self._look()

    def _look(self) -> None:
        topology = self.topology
        water, planned = topology.water, topology.placements.planned
        offered = sum(pool.offered for pool in water.pools)
        throughput = sum(sink.weight * water.by_name[sink.name].speed for sink in topology.definition.sinks)
        waiting = topology.waiting
        instances = {one.name: planned.total(one.name) for one in topology.definition.operators}
        machines, chains = len(topology.cluster.machines), topology.chaining.chains
        moment = Moment(self._elapsed(), offered, throughput, machines, instances, round(waiting), chains)
        self.trace.moments.append(moment)
        self._collect()

    def _collect(self) -> None:
        for one in self.steering.operations.all():
            if one.id > self._seen:
                self._seen = one.id
                self._pending[one.id] = one
        for number, one in list(self._pending.items()):
            if one.state.over:
                del self._pending[number]
                self.trace.operations.append(self._done(one))
        # Operations of a driver that knows nothing of an earlier one begin with 1 again.
        self.trace.operations.sort(key=lambda one: (one.asked, one.id))

    def _done(self, one: Operation) -> Done:
        start = self.topology.started_at
        asked, ended = one.asked_at - start, (one.ended_at or one.asked_at) - start
        actions = one.proposal.plan.actions if one.proposal is not None else ()
        machines = sum(isinstance(action, AddMachine) for action in actions)
        machines -= sum(isinstance(action, RemoveMachine) for action in actions)
        before, after = self.trace.at(asked).instances, self._instances()
        more = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        began = asked if one.began_at is None else one.began_at - start
        return Done(one.id, one.action, str(one.state), asked, began, ended, machines, more, one.reason)

    def _instances(self) -> Instances:
        planned = self.topology.placements.planned
        return {one.name: planned.total(one.name) for one in self.topology.definition.operators}

    def _told(self, kind: str, text: str) -> None:
        self.trace.told.append((self._elapsed(), str(kind), text))

    def _elapsed(self) -> float:
        return run_time() - self.topology.started_at
