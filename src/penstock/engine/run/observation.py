"""What Spark really did: on which slots the newest finished batch of an operator ran, read from Spark's own records."""

from __future__ import annotations

from collections import Counter

from penstock.cluster.model import Slot
from penstock.engine.query.query import OperatorQuery
from penstock.engine.query.seats import RequestedBundles
from penstock.engine.run.any_query import AnyQuery
from penstock.engine.spark.batch_history import RanBatch, RanTask
from penstock.engine.spark.internals import SparkInternals
from penstock.engine.spark.slots import Slots
from penstock.engine.standing.query import StandingQuery
from penstock.running.placements import Observed
from penstock.topology.definition import Keyed


def observe(query: AnyQuery, slots: Slots) -> Observed | None:
    """Where the newest finished batch of a query ran. None as long as no batch has finished, or where Spark does not
    say it (see unplaced.py)."""
    internals = query.context.streams.internals
    if internals is None:
        return None
    if isinstance(query, StandingQuery):
        return _standing(query, internals, slots)
    if query.query is None:
        return None
    ran = internals.ran(query.query)
    requested = query.requested(ran.batch) if ran is not None else None
    if ran is None or requested is None:
        return None
    if not slots.executors():  # a local cluster: a slot is a name that only its bundle knows
        counted = Counter({bundle.slot: 0 for bundle in requested.bundles})
        for bundle in requested.bundles:
            counted[bundle.slot] += bundle.instances
        return Observed(ran.batch, requested.at, counted)
    return _seen(query, ran, requested, slots)


def _standing(query: StandingQuery, internals: SparkInternals, slots: Slots) -> Observed | None:
    """Where the bundles of the present turn stand; None as long as it gets no batches."""
    turn = query.turn
    if turn is None or not query.serves(turn):
        return None
    instances: Counter[Slot] = Counter()
    if not slots.executors():  # a local cluster: a slot is a name that only its bundle knows
        for bundle in turn.bundles:
            instances[bundle.slot] += bundle.instances
        return Observed(turn.number, turn.began, instances)
    strangers = set()
    for task in internals.running(query.group(turn.number)):
        slot = slots.slot_of(task.executor)
        if slot is None:
            strangers.add(task.executor)
        elif task.partition < len(turn.bundles):
            instances[slot] += turn.bundles[task.partition].instances
    return Observed(turn.number, turn.began, instances, {}, frozenset(strangers))


def _seen(query: OperatorQuery, ran: RanBatch, requested: RequestedBundles, slots: Slots) -> Observed:
    stages: dict[int, list[RanTask]] = {}
    for task in ran.tasks:
        stages.setdefault(task.stage, []).append(task)
    reads = [share for share in requested.shares if share]
    # The stages that read come first; in the last one of a keyed operator, partition n is task n. Without a shuffle
    # there is only one stage, which is both.
    reading = [stages[stage] for stage in sorted(stages)][: len(reads)]
    instances: Counter[Slot] = Counter()
    strangers = set()
    for bundles, tasks in zip(reads, reading, strict=False):
        counted: Counter[Slot] = Counter()
        for task in tasks:
            slot = slots.slot_of(task.executor)
            if slot is None:
                strangers.add(task.executor)
            elif task.partition < len(bundles):
                counted[slot] += bundles[task.partition].instances
        instances |= counted
    places: dict[int, Slot] = {}
    if isinstance(query.operator, Keyed) and stages and (requested.by_task or len(stages) > len(reading)):
        for task in stages[max(stages)]:
            slot = slots.slot_of(task.executor)
            if slot is None:
                strangers.add(task.executor)
            else:
                places[task.partition] = slot
    return Observed(ran.batch, requested.at, dict(instances), places, frozenset(strangers))
