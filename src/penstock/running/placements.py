"""Where the instances and tasks of a running topology are to run, and where they ran, as values.

Three placements are kept apart: *planned* is what was decided. *Requested* is the plan on the slots that are
usable now. *Observed* is what ran, by the records of what ran it. `Places` puts the plan beside three witnesses: the
executors that stand behind the slots, the bundles (which executor's process they found themselves in), and the state
store (where a task's state is).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.clock import shown
from penstock.cluster.model import Placement, Slot

#: The prefix of a place that is reported by task and not by slot: rows that come out of Spark SQL.
TASK = "task/"


class Placements(Protocol):
    """The three placements of a running topology, each as it is at the moment it is asked for."""

    @property
    def planned(self) -> Placement:
        """The placement that was decided."""

    @property
    def requested(self) -> Placement:
        """The plan on the slots that are usable now."""

    def observed(self, operator: str) -> Observed | None:
        """Where the newest finished batch of an operator ran; None as long as that is not known."""

    def places(self, operator: str) -> Places:
        """The plan of an operator beside what was observed since the placement last changed."""


@dataclass(frozen=True)
class Observed:
    """Where one operator's newest finished batch ran. A batch of few rows need not use all instances: an instance that
    is not listed was not observed, which does not mean that it is not there."""

    batch: int
    #: When the operator asked for the placement of this batch, in run time.
    began: float
    instances: Mapping[Slot, int]
    tasks: Mapping[int, Slot] = field(default_factory=dict)
    #: Executors that ran something and belong to no slot.
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


@dataclass(frozen=True)
class BundlePlace:
    """All instances of an operator on one slot."""

    slot: str
    instances: int
    #: The executor that is this slot; None where slots are only logical.
    planned: str | None
    #: The executors that ran it; empty if it got no rows, or if that cannot be known.
    observed: tuple[str, ...]


@dataclass(frozen=True)
class TaskPlace:
    """One share of a keyed operator's state."""

    task: int
    slot: str
    planned: str | None
    observed: tuple[str, ...]
    #: Where the state is and where it is to be, in the words of the state store; None if there is none yet.
    location: str | None
    planned_location: str | None


@dataclass(frozen=True)
class Places:
    """The plan of one operator beside what was observed."""

    bundles: tuple[BundlePlace, ...]
    tasks: tuple[TaskPlace, ...] = ()
    #: What the bundles reported, as they reported it: slot or task -> executors.
    reported: Mapping[str, tuple[str, ...]] | None = None

    @property
    def known(self) -> bool:
        """Whether there is anything to compare."""
        return any(one.planned for one in self.bundles) and bool(self.reported or any(t.location for t in self.tasks))

    def differences(self) -> list[str]:
        """What did not run where the plan says; empty where it did, or where nothing is known."""
        if not self.known:
            return []
        found = [
            f"{one.slot} is executor {one.planned}, but its bundle ran on {_list(one.observed)}"
            for one in self.bundles
            if one.observed and one.observed != (one.planned,)
        ]
        for task in self.tasks:
            if task.observed and task.observed != (task.planned,):
                found.append(
                    f"task {task.task} belongs to {task.slot} (executor {task.planned}), but ran on "
                    f"{_list(task.observed)}"
                )
            if task.location is not None and task.location != task.planned_location:
                found.append(f"the state of task {task.task} is at {task.location}, not on {task.slot}")
        return found + self._strays()

    def _strays(self) -> list[str]:
        """Bundles on slots that the plan does not name; without tasks of its own, also executors it does not name."""
        slots = {one.slot for one in self.bundles}
        executors = {one.planned for one in self.bundles}
        found = []
        for place, seen in (self.reported or {}).items():
            if not place.startswith(TASK):
                found += [] if place in slots else [f"a bundle ran on {place}, which the plan does not name"]
            elif not self.tasks and not executors.issuperset(seen):
                found.append(f"{place} ran on {_list(seen)}, which the plan does not name")
        return found


def _list(executors: tuple[str, ...]) -> str:
    return " and ".join(executors)
