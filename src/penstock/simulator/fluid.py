"""Rows as water: what flows through a topology in a moment, with cores that are shared and channels that fill up.

No clock and no randomness: time and offered rows are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from penstock.cluster.model import Cluster, Placement
from penstock.simulator.cores import shared
from penstock.simulator.queries import FluidBundle, FluidQuery, Pool, Work
from penstock.simulator.truth import Truth
from penstock.strategies.mapping.chains import Chains, following
from penstock.topology.definition import Keyed, TopologyDefinition


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
        #: What runs as one, in the order of the streams; which of them reads a stream.
        self.queries: list[FluidQuery] = []
        self._consumers: list[int] = []
        self._emits: list[float] = []
        self.retune(truth)
        #: By slot: its cores, the queries that work there and their bundles, and how many cores are asked for, for one
        #: that is there.
        self._cores: list[float] = []
        self._by_slot: list[list[tuple[int, int]]] = []
        self._crowd: list[float] = []
        #: Rows a second that the driver can hand out at all sources together.
        self.driver = math.inf
        #: Whether sources emit nothing; what is offered meanwhile stays due.
        self.shut = False
        #: Operators that stand still.
        self.still: Collection[str] = ()

    def place(self, placement: Placement, cluster: Cluster, chains: Chains = ()) -> None:
        """The operators of a chain must be placed alike, and no rows may wait between them."""
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
        behind, chained = following(chains), {chain[0]: chain for chain in chains}
        firsts = [pool.name for pool in self.pools if pool.name not in behind]
        self.queries = [
            FluidQuery.of([self.by_name[name] for name in chained.get(first, (first,))], self._emits)
            for first in firsts
        ]
        places = {pool.name: number for number, query in enumerate(self.queries) for pool in query.pools}
        self._consumers = [places[stream.consumer] for stream in self.streams]
        for number, query in enumerate(self.queries):
            for place, bundle in enumerate(query.bundles) if query.cores > 0 else ():
                self._by_slot[bundle.slot].append((number, place))

    def retune(self, truth: Mapping[str, Truth]) -> None:
        """Operators are as fast as this from now on."""
        for pool in self.pools:
            pool.truth = truth[pool.name]
        self._emits = [self.by_name[stream.producer].truth.emits(stream.name) for stream in self.streams]

    def flow(self, dt: float) -> None:
        """Let so many seconds pass, in which nothing else changes."""
        usable = [self._usable(query, got) for query, got in zip(self.queries, self._grants(dt), strict=True)]
        able = [_able(query, busy) * dt for query, busy in zip(self.queries, usable, strict=True)]
        # From the sinks back: how much each query may execute, so that its output finds room.
        allowed = list(able)
        for number in reversed(range(len(self.queries))):
            query = self.queries[number]
            for stream, rows in query.outputs:
                consumer = self._consumers[stream]
                if rows > 0:
                    drained = allowed[consumer] / len(self.queries[consumer].inputs)
                    room = max(self.bound - self.levels[stream], 0.0) + drained
                    allowed[number] = min(allowed[number], room / rows)
        for pool in self.pools:
            pool.arriving = 0.0
        driver = self.driver * dt
        for number, query in enumerate(self.queries):
            given = math.inf if query.inputs else driver
            done, full = self._execute(query, able[number], allowed[number], given, dt)
            driver -= 0.0 if query.inputs else done
            self._account(query, usable[number], done, full, dt)
        for pool in self.pools:
            pool.inflow = pool.arriving / dt

    # Who gets which cores. What is wanted and granted are busy instances: how many cores one needs, its query says.

    def _grants(self, dt: float) -> list[list[float]]:
        """How many instances of each query can be busy on each of its slots, by the cores there."""
        wanted = self._wants(dt)
        grants = [list(one) for one in wanted]
        left = list(self._cores)
        for slot, ones in enumerate(self._by_slot):
            asked = [wanted[number][place] * self.queries[number].cores for number, place in ones]
            self._crowd[slot] = max(sum(asked) / self._cores[slot], 1.0)
            counts = [self.queries[number].bundles[place].work.instances for number, place in ones]
            for (number, place), cores in zip(ones, shared(self._cores[slot], asked, counts), strict=True):
                grants[number][place] = cores / self.queries[number].cores
                left[slot] -= cores
        if any(crowd > 1.0 for crowd in self._crowd):
            self._move_on(wanted, grants, left)
        for number, query in enumerate(self.queries):
            for place, bundle in enumerate(query.bundles) if query.cores > 0 else ():
                # Cores that nobody asked for are there for rows that come sooner than expected.
                grants[number][place] += max(left[bundle.slot], 0.0) / query.cores
        return grants

    def _move_on(self, wanted: list[list[float]], grants: list[list[float]], left: list[float]) -> None:
        """Rows that any instance may take are taken by those on slots that have cores left."""
        for number, query in enumerate(self.queries):
            if query.keyed or query.cores <= 0:
                continue
            lacks = sum(wanted[number]) - sum(grants[number])
            for place, bundle in enumerate(query.bundles):
                more = min(lacks, left[bundle.slot] / query.cores, bundle.most - grants[number][place])
                if more > 0:
                    grants[number][place] += more
                    left[bundle.slot] -= more * query.cores
                    lacks -= more

    def _wants(self, dt: float) -> list[list[float]]:
        """How many instances of each query could be busy on each of its slots. One that waits for those behind it is
        not busy with the rows that wait in front of it."""
        found: list[list[float]] = [[] for _ in self.queries]
        rates = [0.0] * len(self.queries)
        for number in reversed(range(len(self.queries))):
            query = self.queries[number]
            if self._stands_still(query):
                found[number] = [0.0] * len(query.bundles)
                continue
            first = query.first
            waiting = sum(self.levels[stream] for stream in query.inputs) + first.unmet
            rate = min(waiting / dt + (first.inflow if query.inputs else first.offered), query.most)
            for stream, rows in query.outputs:
                consumer = self._consumers[stream]
                if rows > 0:
                    room = (self.bound - self.levels[stream]) / dt
                    rate = min(rate, (max(room, 0.0) + rates[consumer] / len(self.queries[consumer].inputs)) / rows)
            busy = rate / query.rate
            found[number] = [min(busy * bundle.share, bundle.most) for bundle in query.bundles]
            rates[number] = min(rate, sum(found[number]) * query.rate)
        return found

    def _usable(self, query: FluidQuery, granted: list[float]) -> list[float]:
        if self._stands_still(query):
            return [0.0] * len(query.bundles)
        if query.cores <= 0:
            return [bundle.most for bundle in query.bundles]
        return [min(got, bundle.most) for got, bundle in zip(granted, query.bundles, strict=True)]

    def _stands_still(self, query: FluidQuery) -> bool:
        return query.first.name in self.still or (self.shut and not query.inputs)

    # What is done with them

    def _execute(self, query: FluidQuery, able: float, allowed: float, given: float, dt: float) -> tuple[float, bool]:
        """The rows that a query executes: of those that wait, as many as it is able to, as find room behind it, and as
        the driver gives to it; and whether it executes all that it can, and more waits."""
        first = query.first
        first.unmet += first.offered * dt
        waiting = sum(self.levels[stream] for stream in query.inputs) if query.inputs else first.unmet
        rows = min(waiting, allowed, given)
        if not query.inputs:
            first.unmet -= rows
        elif waiting > 0:
            for stream in query.inputs:
                part = rows * self.levels[stream] / waiting
                self.levels[stream] -= part
                self.read[stream] += part
        for pool, share in zip(query.pools, query.rows, strict=True):
            # Whoever waits for those behind it waits with all its operators.
            pool.throttled = allowed < min(waiting, able) - 1e-9
            pool.rows += rows * share
            pool.speed = rows * share / dt
        for pool, (stream, share) in zip(query.pools[1:], query.inside, strict=True):
            self.read[stream] += rows * share
            self.written[stream] += rows * share
            pool.arriving += rows * share
        for stream, share in query.outputs:
            emitted = rows * share
            self.levels[stream] += emitted
            self.written[stream] += emitted
            self.queries[self._consumers[stream]].first.arriving += emitted
        return rows, able > 0 and waiting > able * 1.0001 and rows >= able * 0.9999

    def _account(self, query: FluidQuery, usable: list[float], rows: float, full: bool, dt: float) -> None:
        total = sum(usable)
        for place, (busy, bundle) in enumerate(zip(usable, query.bundles, strict=True)):
            part = rows * (bundle.share if query.keyed or total <= 0 else busy / total)
            query.account(place, part, self._crowd[bundle.slot], full, dt)


def _able(query: FluidQuery, usable: list[float]) -> float:
    """Rows a second that a query can execute with so many instances that are busy."""
    if not query.keyed:
        return min(sum(usable) * query.rate, query.most)
    parts = [one / bundle.share for one, bundle in zip(usable, query.bundles, strict=True) if bundle.share]
    return min(min(parts, default=0.0) * query.rate, query.most)
