"""Where each bundle ran: the plan beside what was observed, and in which points the two differ.

Three voices, none of which overwrites another: the plan (slots, and the executors that are these slots), the bundles
themselves (which executor's process they found themselves in), and Spark's state store (where a task's state is).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.model import Slot
from penstock.cluster.provider import Executor
from penstock.engine.run.run import Run

#: Rows that come out of Spark SQL are reported by task, not by slot.
_TASK = "task/"


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
    #: Spark's own words for where the state is: executor_<host>_<id>; None if it has none yet.
    location: str | None
    planned_location: str | None


@dataclass(frozen=True)
class Places:
    """Everything about one operator."""

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
            if not place.startswith(_TASK):
                found += [] if place in slots else [f"a bundle ran on {place}, which the plan does not name"]
            elif not self.tasks and not executors.issuperset(seen):
                found.append(f"{place} ran on {_list(seen)}, which the plan does not name")
        return found


def places_of(run: Run, operator: str) -> Places:
    """To be asked while the run is up: Spark forgets where state was when a query stops."""
    bound = run.host.slots.bindings()
    reported = {place: _in_order(seen) for place, seen in run.statistics.observed(operator).items()}
    bundles = tuple(
        BundlePlace(slot.name, count, _id(bound.get(slot)), reported.get(slot.name, ()))
        for slot, count in sorted(run.placement.of(operator).items())
    )
    return Places(bundles, tuple(_tasks(run, operator, bound, reported)), reported)


def _tasks(
    run: Run, operator: str, bound: Mapping[Slot, Executor | None], reported: Mapping[str, tuple[str, ...]]
) -> list[TaskPlace]:
    slots = run.placement.tasks.get(operator, ())
    locations = run.state_locations(operator) or [None] * len(slots)
    return [
        TaskPlace(
            task,
            slot.name,
            _id(executor := bound.get(slot)),
            reported.get(f"{_TASK}{task}", ()),
            location,
            f"executor_{executor.host}_{executor.id}" if executor else None,
        )
        for task, (slot, location) in enumerate(zip(slots, locations, strict=True))
    ]


def _id(executor: Executor | None) -> str | None:
    return executor.id if executor else None


def _in_order(executors: set[str]) -> tuple[str, ...]:
    return tuple(sorted(executors, key=lambda one: (len(one), one)))


def _list(executors: tuple[str, ...]) -> str:
    return " and ".join(executors)
