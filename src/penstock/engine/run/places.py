"""The planned, requested and observed placement of a run on Spark: what `run.placements` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.cluster.model import Placement, Slot
from penstock.cluster.provider import Executor
from penstock.engine.run.any_query import AnyQuery
from penstock.engine.run.arrangement import Arrangement
from penstock.engine.run.observation import observe
from penstock.engine.spark.host import SparkHost
from penstock.monitor.observed_places import ObservedPlaces
from penstock.running.placements import TASK, BundlePlace, Observed, Places, TaskPlace


class PlacedRun(Protocol):
    """A run, as its placements see it."""

    @property
    def arrangement(self) -> Arrangement: ...
    @property
    def host(self) -> SparkHost: ...
    @property
    def observed_places(self) -> ObservedPlaces: ...

    def query(self, operator: str) -> AnyQuery: ...


class RunPlacements:
    """Implements `penstock.running.Placements` over a run."""

    def __init__(self, run: PlacedRun) -> None:
        self._run = run

    @property
    def planned(self) -> Placement:
        return self._run.arrangement.planned

    @property
    def requested(self) -> Placement:
        return self._run.arrangement.requested

    def observed(self, operator: str) -> Observed | None:
        """As Spark has it in its records."""
        return observe(self._run.query(operator), self._run.host.slots)

    def places(self, operator: str) -> Places:
        """The plan of an operator beside what was observed. The run must be up: Spark forgets where the state of a
        query was when the query stops."""
        bound = self._run.host.slots.bindings()
        reported = {place: _in_order(seen) for place, seen in self._run.observed_places.of(operator).items()}
        bundles = tuple(
            BundlePlace(slot.name, count, _id(bound.get(slot)), reported.get(slot.name, ()))
            for slot, count in sorted(self.planned.of(operator).items())
        )
        return Places(bundles, tuple(self._tasks(operator, bound, reported)), reported)

    def state_locations(self, operator: str) -> list[str | None]:
        """Where the state of each task is to be, by Spark's own records."""
        query = self._run.query(operator)
        if query.state is None or query.query is None:
            return []
        return query.state.locations(query.query)

    def _tasks(
        self, operator: str, bound: Mapping[Slot, Executor | None], reported: Mapping[str, tuple[str, ...]]
    ) -> list[TaskPlace]:
        slots = self.planned.tasks.get(operator, ())
        locations = self.state_locations(operator) or [None] * len(slots)
        return [
            TaskPlace(
                task,
                slot.name,
                _id(executor := bound.get(slot)),
                reported.get(f"{TASK}{task}", ()),
                location,
                f"executor_{executor.host}_{executor.id}" if executor else None,
            )
            for task, (slot, location) in enumerate(zip(slots, locations, strict=True))
        ]


def _id(executor: Executor | None) -> str | None:
    return executor.id if executor else None


def _in_order(executors: set[str]) -> tuple[str, ...]:
    return tuple(sorted(executors, key=lambda one: (len(one), one)))
