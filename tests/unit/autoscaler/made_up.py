"""A topology in a line and what was measured of it, made up: rows -> work -> count (keyed) -> out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from penstock import Topology, sinks, sources
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.policy import Decided, Fate, View, view_of
from penstock.autoscaler.proposals import Prediction, Proposal
from penstock.autoscaler.records import Figures, Record, Verdict
from penstock.cluster.model import Cluster, ComingMachines, Placement, Slot
from penstock.errors import Refusal
from penstock.monitor.snapshot import Backlog, OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.plans.plan import Action, Plan
from penstock.settings import Settings
from penstock.strategies.mapping.tasks import deal_tasks

SCHEMA = "id long, value double"
TASKS = 4


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def declared(keyed: bool = True):
    made = Topology("line")
    last = made.source("rows", sources.rate(1, sources.numbers()))
    last = made.map("work", same, inputs=[last], schema=SCHEMA)
    if keyed:
        last = made.keyed("count", lambda frame: frame, inputs=[last], key="id", schema=SCHEMA, tasks=TASKS)
    made.sink("out", sinks.noop(), inputs=[last])
    return made.definition()


KEYED, PLAIN = declared(), declared(keyed=False)


def cluster(machines: int, cores: int = 2) -> Cluster:
    return Cluster.of([f"m{number}" for number in range(1, machines + 1)], 1, cores)


def placed(where: Cluster, **instances: int) -> Placement:
    """Instances dealt to the slots in turn."""
    slots = where.slots
    dealt: dict[str, dict[Slot, int]] = {}
    for name, count in instances.items():
        dealt[name] = {}
        for number in range(count):
            slot = slots[number % len(slots)]
            dealt[name][slot] = dealt[name].get(slot, 0) + 1
    tasks = {"count": deal_tasks(TASKS, dealt["count"])} if "count" in dealt else {}
    return Placement(dealt, tasks)


def seen(
    placement: Placement,
    where: Cluster,
    speeds: Mapping[str, float],
    offered: float,
    *,
    cpu: float | None = None,
    chains: tuple[tuple[str, ...], ...] = (),
    waiting: int = 0,
    **more: Any,
) -> Snapshot:
    """What is measured if an instance of each operator does so many rows a second, and producers wait for consumers:
    every operator does what the slowest does. `cpu` is the CPU time of a busy second; by default all of it."""
    definition = KEYED if "count" in placement.instances else PLAIN
    names = [one.name for one in definition.operators]
    speed = {name: speeds[name] * placement.total(name) for name in names}
    for chain in chains:
        whole = placement.total(chain[0]) / sum(1 / speeds[name] for name in chain)
        speed |= dict.fromkeys(chain, whole)
    done = min(offered, *speed.values())
    slow = min(speed, key=lambda name: speed[name]) if done < offered else names[0]
    operators = {}
    for name, one in zip(names, definition.operators, strict=True):
        before = names.index(name) < names.index(slow)
        busy = done / (speeds[name] * placement.total(name))
        operators[name] = OperatorSnapshot(
            name,
            one.kind,
            placement.total(name),
            rate=done,
            input_rate=offered if name == "rows" else done,
            capacity=speeds[name],
            utilisation=busy,
            cpu_utilisation=busy * (1.0 if cpu is None else cpu),
            held_back=before and done < offered,
            backlog=Backlog(waiting, waiting * 8, 1.0, 0.0) if name == "work" else Backlog(0, 0, None, 0.0),
        )
    streams = {f"{a}->{b}": StreamSnapshot(f"{a}->{b}", a, "out", b, emit_rate=done) for a, b in pairwise(names)}
    fields: dict[str, Any] = {"since": 0.0, "at": 200.0, "samples": 20} | more
    return Snapshot(
        definition,
        where,
        placement,
        fields["since"],
        fields["at"],
        fields["samples"],
        operators,
        streams,
        {},
        {},
        {},
        chains=chains,
    )


def coming(where: Cluster, machines: int) -> ComingMachines:
    """So many machines could come, named m1, m2, ..., as far as these names are free."""
    free = [name for name in (f"m{number}" for number in range(1, 100)) if name not in where.names]
    none_left = Refusal("FIXED_MACHINES", "this cluster has no more machines.", "Choose another cluster.")
    return ComingMachines(Cluster.of(free[:machines], 1, where.slots[0].cores).machines, refusal=none_left)


def view(snapshot: Snapshot, goal: Goal | None = None, *, machines: int = 10, **more: Any) -> View:
    settings = more.pop("settings", Settings())
    made = view_of(replace(snapshot, coming=coming(snapshot.cluster, machines)), settings)
    return replace(made, goal=goal, **({"now": 1000.0} | more))


def decided(
    number: int,
    before: Snapshot,
    *actions: Action,
    at: float = 0.0,
    verdict: Verdict = Verdict.AS_EXPECTED,
    measured: Snapshot | None = None,
    expected: float | None = None,
    **more: Any,
) -> Decided:
    """A decision that was carried out, and its record."""
    predictions = () if expected is None else (Prediction("throughput", expected),)
    proposal = Proposal(Plan(actions), predictions=predictions, before=before.placement, **more)
    after = None if measured is None else Figures.of(measured)
    record = Record(at, proposal, Figures.of(before), number, after, verdict, "made up")
    return Decided(at, proposal, Fate.DONE, number, ended=at, record=record)
