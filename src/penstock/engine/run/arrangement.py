"""Where everything is to run: what the plan says, and what Spark is asked for while slots are lost and come back.

Three things that are never mixed up: *planned* is what was decided. *Requested* is the plan on the slots that are
usable now. *Observed* is what Spark did, and is read back from Spark (observation.py).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.channels.catalog import Catalog
from penstock.clock import run_time
from penstock.cluster.model import Cluster, Placement, Slot
from penstock.plans.repair import repair
from penstock.strategies.mapping.chains import Chains, as_one
from penstock.topology.definition import Keyed, TopologyDefinition

_PLACEMENT = "placement"
_CHANGE = "change"


class Arrangement:
    """The planned and the requested placement of one run. Every query reads it before each of its micro-batches."""

    def __init__(self, planned: Placement, usable: Callable[[], frozenset[Slot]]) -> None:
        self._lock = threading.Lock()
        self._usable = usable
        self._planned = self._requested = planned
        self._slots: frozenset[Slot] | None = None
        #: Operators that run as one query, and so are always on the same slots.
        self._chains: Chains = ()
        #: When the requested placement last changed: a batch that began later ran by it.
        self.changed_at = 0.0

    @property
    def planned(self) -> Placement:
        return self._planned

    @property
    def requested(self) -> Placement:
        """The plan, repaired onto the slots that are usable now. It is the plan again when all slots are back."""
        usable = self._usable()
        with self._lock:
            if usable != self._slots:
                self._slots = usable
                self._request()
            return self._requested

    def plan(self, placement: Placement) -> None:
        """Decide for another placement: every operator runs by it from its next micro-batch on."""
        with self._lock:
            self._planned = placement
            self._request()

    @property
    def chains(self) -> Chains:
        return self._chains

    def chain(self, chains: Chains) -> None:
        with self._lock:
            self._chains = chains
            self._request()

    def _request(self) -> None:
        requested = as_one(repair(self._planned, self._slots or frozenset()), self._chains)
        if requested != self._requested:
            self._requested = requested
            self.changed_at = run_time()


def record(catalog: Catalog, definition: TopologyDefinition, placement: Placement) -> None:
    """Remember a placement that runs: a topology that is started again on its state has it again."""
    slots = {name: {slot.name: count for slot, count in slots.items()} for name, slots in placement.instances.items()}
    tasks = {name: [slot.name for slot in slots] for name, slots in placement.tasks.items()}
    content = {"declared": _declared(definition), "instances": slots, "tasks": tasks}
    catalog.set_meta(_PLACEMENT, json.dumps(content))


def recorded(catalog: Catalog, definition: TopologyDefinition, cluster: Cluster) -> Placement | None:
    """The placement that was recorded last, on the slots of this cluster; None if there is none, or if the user has
    since declared other instances."""
    text = catalog.get_meta(_PLACEMENT)
    content: dict[str, Any] = json.loads(text) if text else {}
    if content.get("declared") != _declared(definition):
        return None
    here = {slot.name: slot for slot in cluster.slots}

    def slot(name: str) -> Slot:
        machine, _, index = name.rpartition("/")
        return here.get(name, Slot(machine, int(index)))

    instances: Mapping[str, Mapping[str, int]] = content["instances"]
    placement = Placement(
        {name: {slot(one): count for one, count in slots.items()} for name, slots in instances.items()},
        {name: tuple(slot(one) for one in slots) for name, slots in content["tasks"].items()},
    )
    return repair(placement, cluster.slots)


def note_change(catalog: Catalog, what: str) -> None:
    """Write down what is about to be changed, and an empty text when the change is over. If the driver is killed in
    between, the next driver says so. Whether the change counts is not told by this note, but by the placement that is
    recorded."""
    catalog.set_meta(_CHANGE, what)


def unfinished_change(catalog: Catalog) -> str:
    """The change that was under way when the last driver ended, or whose end it could not note; empty if there was
    none."""
    return catalog.get_meta(_CHANGE) or ""


def _declared(definition: TopologyDefinition) -> dict[str, list[int]]:
    return {
        operator.name: [operator.instances, operator.tasks if isinstance(operator, Keyed) else 0]
        for operator in definition.operators
    }
