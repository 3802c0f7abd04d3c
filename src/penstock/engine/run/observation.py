"""What Spark really did: on which slots the newest finished batch of an operator ran, read from Spark's own records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.clock import shown
from penstock.cluster.model import Placement, Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.query import OperatorQuery
from penstock.engine.spark.internals import RanBatch, RanTask
from penstock.engine.spark.slots import Slots
from penstock.topology.definition import Keyed


@dataclass(frozen=True)
class Seen:
    """One operator's newest finished batch. A batch of few rows need not use all instances: what is not seen is not
    known, and not zero."""

    batch: int
    #: When the operator asked where its bundles are to be.
    began: float
    instances: Mapping[Slot, int]
    tasks: Mapping[int, Slot] = field(default_factory=dict)
    #: Executors that stand behind no slot.
    strangers: frozenset[str] = frozenset()

    def as_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "began": shown(self.began),
            "instances": {slot.name: count for slot, count in sorted(self.instances.items())},
            "tasks": {str(task): slot.name for task, slot in sorted(self.tasks.items())},
            "strangers": sorted(self.strangers),
        }

    def agrees(self, operator: str, placement: Placement) -> bool:
        """Whether everything ran where the placement says."""
        places = placement.tasks.get(operator, ())
        return (
            not self.strangers
            and self.instances.keys() <= placement.of(operator).keys()
            and all(task < len(places) and places[task] == slot for task, slot in self.tasks.items())
        )


def observe(query: OperatorQuery, slots: Slots) -> Seen | None:
    """None as long as nothing has run, or where Spark does not say (see unplaced.py)."""
    internals = query.environment.streams.internals
    if internals is None or query.query is None:
        return None
    ran = internals.ran(query.query)
    asked = query.asked.get(ran.batch) if ran is not None else None
    if ran is None or asked is None:
        return None
    if not slots.executors():  # a local cluster: a slot is a name that only its bundle knows
        counted = Counter({bundle.slot: 0 for bundle in asked.bundles})
        for bundle in asked.bundles:
            counted[bundle.slot] += bundle.instances
        return Seen(ran.batch, asked.at, counted)
    return _seen(query, ran, asked.at, asked.shares, slots)


def _seen(query: OperatorQuery, ran: RanBatch, at: float, shares: list[list[Bundle]], slots: Slots) -> Seen:
    stages: dict[int, list[RanTask]] = {}
    for task in ran.tasks:
        stages.setdefault(task.stage, []).append(task)
    reads = [share for share in shares if share]
    # The stages that read come first; in the last one of a keyed operator, partition n is task n.
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
    if isinstance(query.operator, Keyed) and len(stages) > len(reading):
        for task in stages[max(stages)]:
            slot = slots.slot_of(task.executor)
            if slot is None:
                strangers.add(task.executor)
            else:
                places[task.partition] = slot
    return Seen(ran.batch, at, dict(instances), places, frozenset(strangers))
