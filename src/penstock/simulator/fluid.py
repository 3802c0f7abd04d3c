"""Rows as water: what flows through a topology in a moment, with cores that are shared and channels that fill up.

No clock and no randomness: time and offered rows are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.cluster.model import Cluster, Placement
from penstock.simulator.cores import shared
from penstock.simulator.truth import Truth
from penstock.topology.definition import Keyed, TopologyDefinition

#: The CPU time of an instance that waits, for a second that it waits.
CPU_OF_WAITING = 0.02


@dataclass
class Work:
    """What one operator did on one slot since its last batch."""

    slot: str
    instances: int
    rows: float = 0.0
    #: Seconds, of all instances together.
    busy: float = 0.0
    cpu: float = 0.0


@dataclass
class FluidBundle:
    """An operator on a slot: how much of the work it can do, and what it did."""

    slot: int
    work: Work
    #: The share of the operator's rows that belongs here: by tasks, where it is keyed; else by instances.
    share: float
    #: How many cores its instances can use at once, on work that is dealt as its tasks are.
    most: float


@dataclass
class Pool:
    """An operator."""

    name: str
    truth: Truth
    keyed: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bundles: list[FluidBundle] = field(default_factory=list)
    #: Rows a second that are offered to a source, and rows that are due and not emitted.
    offered: float = 0.0
    unmet: float = 0.0
    throttled: bool = False
    #: Whether it executes all that it can, and more waits.
    full: bool = False
    #: Rows executed since its last batch, and rows a second now.
    rows: float = 0.0
    speed: float = 0.0
    #: Rows that arrive now, and rows a second that arrived in the moment before.
    arriving: float = 0.0
    inflow: float = 0.0


class Water:
    """The flow through one topology on one cluster."""

    def __init__(self, definition: TopologyDefinition, truth: Mapping[str, Truth], bound: float) -> None:
        """`bound` is how many rows a channel holds."""
        self.bound = bound
        self.streams = definition.streams
        #: Rows that wait, by stream.
        self.levels = [0.0] * len(self.streams)
        #: Rows that were read and written since the last batch, by stream.
        self.read = [0.0] * len(self.streams)
        self.written = [0.0] * len(self.streams)
        self.pools = [
            Pool(
                one.name,
                truth[one.name],
                isinstance(one, Keyed),
                tuple(n for n, stream in enumerate(self.streams) if stream.consumer == one.name),
                tuple(n for n, stream in enumerate(self.streams) if stream.producer == one.name),
            )
            for one in definition.operators
        ]
        self.by_name = {pool.name: pool for pool in self.pools}
        places = {pool.name: number for number, pool in enumerate(self.pools)}
        self._consumers = [places[stream.consumer] for stream in self.streams]
        self._emits: list[float] = []
        self.retune(truth)
        #: By slot: its cores, the operators that work there and their bundles, and how many cores are asked for, for
        #: one that is there.
        self._cores: list[float] = []
        self._by_slot: list[list[tuple[int, int]]] = []
        self._crowd: list[float] = []
        #: Rows a second that the driver can hand out at all sources together.
        self.driver = math.inf
        #: Whether sources emit nothing; what is offered meanwhile stays due.
        self.shut = False
        #: Operators that stand still.
        self.still: Collection[str] = ()

    def place(self, placement: Placement, cluster: Cluster) -> None:
        slots = {slot: number for number, slot in enumerate(cluster.slots)}
        self._cores = [float(slot.cores) for slot in cluster.slots]
        for pool in self.pools:
            placed = {slot: count for slot, count in placement.of(pool.name).items() if slot in slots}
            total, tasks = sum(placed.values()), placement.tasks.get(pool.name, ())
            pool.bundles = []
            for slot, count in sorted(placed.items()):
                share, most = count / total, float(count)
                if pool.keyed and tasks:
                    held = sum(one == slot for one in tasks)
                    share = held / len(tasks)
                    # The fullest instance sets the pace, the others wait for it.
                    most = held / math.ceil(held / count) if held else 0.0
                pool.bundles.append(FluidBundle(slots[slot], Work(slot.name, count), share, most))
        self._by_slot = [[] for _ in slots]
        self._crowd = [1.0] * len(slots)
        for number, pool in enumerate(self.pools):
            for place, bundle in enumerate(pool.bundles) if pool.truth.works else ():
                self._by_slot[bundle.slot].append((number, place))

    def retune(self, truth: Mapping[str, Truth]) -> None:
        """Operators are as fast as this from now on."""
        for pool in self.pools:
            pool.truth = truth[pool.name]
        self._emits = [self.by_name[stream.producer].truth.emits(stream.name) for stream in self.streams]

    def flow(self, dt: float) -> None:
        """Let so many seconds pass, in which nothing else changes."""
        usable = [self._usable(pool, got) for pool, got in zip(self.pools, self._grants(dt), strict=True)]
        able = [self._able(pool, cores) * dt for pool, cores in zip(self.pools, usable, strict=True)]
        # From the sinks back: how much each operator may execute, so that its output finds room.
        allowed = list(able)
        for number in reversed(range(len(self.pools))):
            pool = self.pools[number]
            for stream in pool.outputs:
                rows, consumer = self._emits[stream], self._consumers[stream]
                if rows > 0:
                    drained = allowed[consumer] / len(self.pools[consumer].inputs)
                    room = max(self.bound - self.levels[stream], 0.0) + drained
                    allowed[number] = min(allowed[number], room / rows)
            pool.arriving = 0.0
        driver = self.driver * dt
        for number, pool in enumerate(self.pools):
            done = self._execute(pool, able[number], allowed[number], math.inf if pool.inputs else driver, dt)
            driver -= 0.0 if pool.inputs else done
            self._account(pool, usable[number], done, pool.full, dt)
        for pool in self.pools:
            pool.inflow = pool.arriving / dt

    # Who gets which cores

    def _grants(self, dt: float) -> list[list[float]]:
        """The cores that each operator may use on each of its slots."""
        wanted = self._wants(dt)
        grants = [list(one) for one in wanted]
        left = list(self._cores)
        for slot, ones in enumerate(self._by_slot):
            asked = [wanted[number][place] for number, place in ones]
            self._crowd[slot] = max(sum(asked) / self._cores[slot], 1.0)
            counts = [self.pools[number].bundles[place].work.instances for number, place in ones]
            for (number, place), cores in zip(ones, shared(self._cores[slot], asked, counts), strict=True):
                grants[number][place] = cores
                left[slot] -= cores
        if any(crowd > 1.0 for crowd in self._crowd):
            self._move_on(wanted, grants, left)
        for number, pool in enumerate(self.pools):
            for place, bundle in enumerate(pool.bundles):
                # Cores that nobody asked for are there for rows that come sooner than expected.
                grants[number][place] += max(left[bundle.slot], 0.0)
        return grants

    def _move_on(self, wanted: list[list[float]], grants: list[list[float]], left: list[float]) -> None:
        """Rows that any instance may take are taken by those on slots that have cores left."""
        for number, pool in enumerate(self.pools):
            if pool.keyed or not pool.truth.works:
                continue
            lacks = sum(wanted[number]) - sum(grants[number])
            for place, bundle in enumerate(pool.bundles):
                more = min(lacks, left[bundle.slot], bundle.most - grants[number][place])
                if more > 0:
                    grants[number][place] += more
                    left[bundle.slot] -= more
                    lacks -= more

    def _wants(self, dt: float) -> list[list[float]]:
        """The cores that each operator could use on each of its slots. One that waits for those behind it needs none
        for the rows that wait in front of it."""
        found: list[list[float]] = [[] for _ in self.pools]
        rates = [0.0] * len(self.pools)
        for number in reversed(range(len(self.pools))):
            pool = self.pools[number]
            if pool.name in self.still or (self.shut and not pool.inputs):
                found[number] = [0.0] * len(pool.bundles)
                continue
            waiting = sum(self.levels[stream] for stream in pool.inputs) + pool.unmet
            rate = min(waiting / dt + (pool.inflow if pool.inputs else pool.offered), pool.truth.most)
            for stream in pool.outputs:
                rows, consumer = self._emits[stream], self._consumers[stream]
                if rows > 0:
                    room = (self.bound - self.levels[stream]) / dt
                    rate = min(rate, (max(room, 0.0) + rates[consumer] / len(self.pools[consumer].inputs)) / rows)
            cores = rate / pool.truth.rate
            found[number] = [min(cores * bundle.share, bundle.most) for bundle in pool.bundles]
            rates[number] = min(rate, sum(found[number]) * pool.truth.rate)
        return found

    def _usable(self, pool: Pool, cores: list[float]) -> list[float]:
        if pool.name in self.still or (self.shut and not pool.inputs):
            return [0.0] * len(pool.bundles)
        if not pool.truth.works:
            return [bundle.most for bundle in pool.bundles]
        return [min(got, bundle.most) for got, bundle in zip(cores, pool.bundles, strict=True)]

    def _able(self, pool: Pool, usable: list[float]) -> float:
        """Rows a second that an operator can execute with these cores."""
        if not pool.keyed:
            return min(sum(usable) * pool.truth.rate, pool.truth.most)
        parts = [one / bundle.share for one, bundle in zip(usable, pool.bundles, strict=True) if bundle.share]
        return min(min(parts, default=0.0) * pool.truth.rate, pool.truth.most)

    # What is done with them

    def _execute(self, pool: Pool, able: float, allowed: float, given: float, dt: float) -> float:
        """The rows that an operator executes: of those that wait, as many as it is able to, as find room behind it, and
        as the driver gives to it."""
        pool.unmet += pool.offered * dt
        waiting = sum(self.levels[stream] for stream in pool.inputs) if pool.inputs else pool.unmet
        rows = min(waiting, allowed, given)
        if not pool.inputs:
            pool.unmet -= rows
        elif waiting > 0:
            for stream in pool.inputs:
                part = rows * self.levels[stream] / waiting
                self.levels[stream] -= part
                self.read[stream] += part
        pool.throttled = allowed < min(waiting, able) - 1e-9
        pool.full = able > 0 and waiting > able * 1.0001 and rows >= able * 0.9999
        pool.rows += rows
        pool.speed = rows / dt
        for stream in pool.outputs:
            emitted = rows * self._emits[stream]
            self.levels[stream] += emitted
            self.written[stream] += emitted
            self.pools[self._consumers[stream]].arriving += emitted
        return rows

    def _account(self, pool: Pool, usable: list[float], rows: float, full: bool, dt: float) -> None:
        total = sum(usable)
        for cores, bundle in zip(usable, pool.bundles, strict=True):
            part = rows * (bundle.share if pool.keyed or total <= 0 else cores / total)
            spent, most = part / pool.truth.rate, bundle.work.instances * dt
            bundle.work.rows += part
            bundle.work.cpu += spent if pool.truth.works else spent * CPU_OF_WAITING
            # An instance that shares its core is busy for longer than it has the core.
            crowd = self._crowd[bundle.slot] if pool.truth.works else 1.0
            bundle.work.busy += min(most, max(spent * crowd, most if full and not pool.keyed else 0.0))
