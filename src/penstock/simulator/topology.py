"""A topology on a fluid cluster, in virtual time. It is measured by the real monitor, from the reports of its batches
on, so that gaps, young windows and operators that are held back look as they do on Spark."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from itertools import count, islice
from typing import Any

from penstock.clock import Alarm, run_time
from penstock.cluster.model import Cluster, ComingMachines, Machine, Placement, Slot
from penstock.monitor.snapshot import Snapshot
from penstock.settings import Settings
from penstock.simulator.chaining import FluidChaining
from penstock.simulator.clock import VirtualClock
from penstock.simulator.demand import Demand
from penstock.simulator.engine import FluidEngine
from penstock.simulator.fluid import Water
from penstock.simulator.queries import Pool
from penstock.simulator.reports import Reporter
from penstock.simulator.truth import Truth
from penstock.strategies.mapping.chains import as_one
from penstock.testing.recording_topology import RecordingTopology
from penstock.topology.definition import TopologyDefinition

#: The longest moment in which the flow is taken for constant, in seconds.
MOMENT = 5.0
#: While nothing changes, the longest time between two looks, in seconds.
STRIDE = 600.0
#: A batch of an interval ends so many seconds before it, to be counted in it.
JUST_BEFORE = 1e-3


class FluidTopology(RecordingTopology):
    """Implements `penstock.running.RunningTopology`. Its clock must be installed while it is used.

    While nothing changes at all, nothing is computed: snapshots are the last one, later."""

    def __init__(
        self,
        definition: TopologyDefinition,
        cluster: Cluster,
        truth: Mapping[str, Truth],
        demand: Mapping[str, Demand] | None = None,
        *,
        clock: VirtualClock,
        settings: Settings | None = None,
        placement: Placement | None = None,
        machines_most: int = 0,
    ) -> None:
        """`demand` is what each source is offered, by its name. Machines like the first one can be added, up to
        `machines_most` in all."""
        settings = settings or Settings()
        self.engine: FluidEngine = FluidEngine(definition, cluster, placement, settings.slot_instances, clock)
        super().__init__(definition, cluster, settings, engine=self.engine)
        self.clock = clock
        self.demand = dict(demand or {})
        self.truth = dict(truth)
        self.machines_most = machines_most
        self.engine.still = self._stand_still
        self.engine.placed_for_good = self._join
        self.chaining = FluidChaining(self, self.placements.planned)
        bound = self.settings.backlog_rows if self.settings.backlog_policy == "throttle" else math.inf
        self.water = Water(definition, truth, bound)
        self._place()
        self._reporter = Reporter(definition, self.water)
        self._flowed_to = self._batch_since = self.started_at
        self._ended = False
        #: The snapshot that stays the same, and for how long; what the intervals before it were like.
        self._kept: Snapshot | None = None
        self.steady_until = 0.0
        self._same_since = self.started_at
        self._same: tuple[Any, ...] = ()
        self._rounds = 0
        self._next: Alarm | None = None
        self._plan_round()

    # Time goes on

    @property
    def faults(self) -> Any:
        return self.engine.faults

    @property
    def steady(self) -> bool:
        """Whether nothing changes, as far as is known, until `steady_until`."""
        return self._kept is not None and run_time() < self.steady_until

    def disturb(self) -> None:
        """Something is about to change: truth, faults, demand. What was measured until now is told first."""
        self._wake()
        self._publish(run_time())
        self._same = ()

    def retune(self, truth: Mapping[str, Truth]) -> None:
        """Operators are as fast as this from now on."""
        self.disturb()
        self.truth = {**self.truth, **truth}
        self.water.retune(self.truth)
        self._place()

    def limit_driver(self, rate: float) -> None:
        """The driver hands out so many rows a second at most, whatever the machines could do."""
        self.disturb()
        self.water.driver = rate

    def _plan_round(self) -> None:
        """A round at the end of every sampling interval; fewer while nothing changes."""
        now, seconds = run_time(), self.settings.sample_seconds
        at = (now // seconds + 1) * seconds
        if self.steady:
            at = max(min(self.steady_until, now + STRIDE) // seconds * seconds, at)
        self._next = self.clock.later(at - now, self._round, "round")

    def _round(self) -> None:
        now = run_time()
        if self.steady:
            self._plan_round()
            return
        self._wake()
        self._publish(now)
        self._settle(now)
        self._plan_round()

    def flow(self) -> None:
        """Let rows flow until now."""
        self._flow(run_time())

    def _flow(self, now: float) -> None:
        while self._flowed_to < now - 1e-9:
            at = self._flowed_to
            dt = min(MOMENT, now - at, max(self._change_after(at) - at, 1e-3))
            self._offer(at)
            self.water.flow(dt)
            self._flowed_to = at + dt

    def _change_after(self, at: float) -> float:
        elapsed = self._elapsed(at)
        return min((self.started_at + one.until(elapsed + 1e-9) for one in self.demand.values()), default=math.inf)

    def _offer(self, at: float) -> None:
        elapsed = self._elapsed(at)
        interval = int(elapsed // self.settings.sample_seconds)
        for name, demand in self.demand.items():
            pool = self.water.by_name[name]
            pool.offered = 0.0 if self._ended else demand.rate(elapsed + 1e-9) * demand.factor(interval)
        # Rows that are due while sources are paused stay due.
        self.water.shut = self.paused

    def _elapsed(self, at: float) -> float:
        return at - self.started_at

    # What is measured

    def _publish(self, now: float) -> None:
        """Tell what every operator has done since its last batch."""
        self._flow(now)
        started, finished = self._batch_since, now - JUST_BEFORE
        if finished <= started:
            return
        self._batch_since = now
        faults = self.engine.faults
        for pool in self.water.pools:
            report, known = self._reporter.batch(pool, started, finished)
            if pool.name in faults.silent:
                continue
            if faults.late:
                self.clock.later(faults.late, partial(self.take, report, known), "late")
            else:
                self.take(report, known)
        self.monitor.write(now, self.placements.requested)

    def snapshot(self) -> Snapshot:
        now = run_time()
        if self._kept is not None and self.steady:
            return self._later(self._kept, now)
        self._wake()
        if now - self._batch_since >= self.settings.sample_seconds:
            self._publish(now)
        self._flow(now)
        faults = self.engine.faults
        if now - self._batch_since > JUST_BEFORE and not faults.late:
            for pool in self.water.pools:
                if pool.name not in faults.silent:
                    self.monitor.look(pool.name, self._reporter.levels(pool, now, self._batch_since))
        return self._measured(now)

    def _measured(self, now: float) -> Snapshot:
        longest = self.settings.longest_batch
        found = self.monitor.snapshot(now, self.placements.requested, self.cluster)
        chains = self.chaining.chains
        return dataclasses.replace(found, chains=chains, longest_batch=longest, coming=self.coming())

    # While nothing changes

    def _settle(self, now: float) -> None:
        """Notice that nothing has changed for as long as the window is."""
        water = self.water
        flows = [(round(pool.speed, 6), pool.throttled, round(pool.offered, 6)) for pool in water.pools]
        shape = (*flows, *(round(level, 3) for level in water.levels), self.paused, self.placements.planned)
        if shape != self._same:
            self._same, self._same_since = shape, now
            return
        faults, noisy = self.engine.faults, any(one.noise for one in self.demand.values())
        length = (self.settings.window_samples + 2) * self.settings.sample_seconds
        if noisy or faults.silent or faults.late or self.changes.step or now - self._same_since < length:
            return
        until = min([self._change_after(now), *(now + _lasts(pool) - length for pool in water.pools)])
        if until > now + self.settings.sample_seconds:
            self._kept, self.steady_until = self._measured(now), until

    def _later(self, kept: Snapshot, now: float) -> Snapshot:
        passed, operators = now - kept.at, dict(kept.operators)
        for pool in self.water.pools:
            if not pool.inputs and pool.unmet >= 1:
                unmet = round(pool.unmet + growth(pool) * passed)
                operators[pool.name] = dataclasses.replace(operators[pool.name], unmet_rows=unmet)
        return dataclasses.replace(kept, since=kept.since + passed, at=now, operators=operators)

    @property
    def waiting(self) -> float:
        """Rows that wait anywhere, also those that are due at sources."""
        passed = 0.0 if self._kept is None else run_time() - self._kept.at
        due = sum(pool.unmet + growth(pool) * passed for pool in self.water.pools if not pool.inputs)
        return sum(self.water.levels) + due

    def _wake(self) -> None:
        """Something changes: the intervals of the window are told as if they had been measured all the time."""
        if self._kept is None:
            return
        self._kept = None
        now, seconds = min(run_time(), self.steady_until), self.settings.sample_seconds
        missed = int((now - self._batch_since) // seconds)
        told = min(missed, self.settings.window_samples + 1)
        skipped = (missed - told) * seconds
        for pool in self.water.pools:
            pool.unmet = max(pool.unmet + growth(pool) * skipped, 0.0)
        self._batch_since += skipped
        self._flowed_to = self._batch_since
        for _ in range(told):
            self._publish(self._batch_since + seconds)
        self._same = ()
        if self._next is not None:
            self._next.cancel()
            self._plan_round()

    # Changes

    def _stand_still(self, operators: frozenset[str]) -> None:
        self.disturb()
        self.water.still = self.chaining.with_chains(operators)

    def placed_anew(self) -> None:
        self.disturb()
        self.chaining.split(self.placements.planned)
        self._place()
        super().placed_anew()

    def placed_alike(self) -> None:
        """Operators that are placed alike run as one from now on."""
        self.disturb()
        self._place()

    def _join(self) -> None:
        self.chaining.join(self.placements.planned, self._stand_still)

    def _place(self) -> None:
        chains = self.chaining.chains
        self.water.place(as_one(self.placements.requested, chains), self.cluster, chains)

    def coming(self) -> ComingMachines:
        free = max(self.machines_most - len(self.cluster.machines), 0)
        like, names = self.cluster.machines[0], set(self.cluster.names)
        fresh = (name for number in count(1) if (name := f"m{number}") not in names)
        return ComingMachines.only(
            Machine(name, tuple(Slot(name, one.index, one.cores) for one in like.slots)) for name in islice(fresh, free)
        )

    # What can be asked

    def backlog(self, operator: str) -> int:
        pool = self.water.by_name[operator]
        return round(sum(self.water.levels[stream] for stream in pool.inputs) + pool.unmet)

    def throttled(self, operator: str) -> bool:
        return self.water.by_name[operator].throttled

    # Its life

    def pause(self, paused: bool = True) -> bool:
        self.disturb()
        changes = super().pause(paused)
        if changes and not paused:
            self.monitor.restart(run_time())
        return changes

    def wait(self, seconds: float | None = None) -> bool:
        self.clock.sleep(STRIDE if seconds is None else seconds)
        self.check()
        return self.finished

    def begin_drain(self) -> None:
        self.disturb()
        super().begin_drain()
        self._ended = True
        for pool in self.water.pools:
            pool.unmet = 0.0

    @property
    def drained(self) -> bool:
        return self.draining and sum(self.water.levels) < 1

    def stop(self, drain: bool = True) -> bool:
        if drain and not self.draining and self.stopped is None:
            self.begin_drain()
        while drain and self.stopped is None and not self.drained:
            self.clock.sleep(MOMENT)
        self.waiting_rows = {pool.name: self.backlog(pool.name) for pool in self.water.pools}
        return super().stop(drain)


def growth(pool: Pool) -> float:
    """By how many rows a second the rows grow that are due at a source; sources only."""
    return pool.offered - pool.speed if not pool.inputs and abs(pool.offered - pool.speed) > 1e-6 else 0.0


def _lasts(pool: Pool) -> float:
    """For how many seconds rows will be due at a source, if they grow fewer."""
    return pool.unmet / -growth(pool) if growth(pool) < 0 else math.inf
