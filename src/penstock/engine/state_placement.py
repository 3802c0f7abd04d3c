"""Which state partitions a keyed operator has, and how Spark is told where they are to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.cluster.model import Slot
from penstock.cluster.provider import Executor
from penstock.engine.spark_internals import SparkInternals

DEFAULT_STORE = "default"
#: A join of two streams keeps four stores a partition.
JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)


@dataclass(frozen=True)
class StatePartition:
    """One store of one task: a query may have several stateful operators, and a join several stores."""

    checkpoint: str
    operator: int
    partition: int
    name: str


class StatePlacer:
    """The state of one running query."""

    def __init__(self, internals: SparkInternals, frame: DataFrame, tasks: int) -> None:
        self._internals = internals
        self._tasks = tasks
        self._operators, joins = internals.stateful_operators(frame)
        # Spark asks for a store by name; a name that the query does not have is never asked for.
        self._names = (DEFAULT_STORE, *JOIN_STORES) if joins else (DEFAULT_STORE,)

    @property
    def stateful(self) -> bool:
        return self._operators > 0

    def place(self, query: StreamingQuery, slots: Sequence[Slot], executor: Callable[[Slot], Executor | None]) -> None:
        """Have every task run on its slot from the next micro-batch on."""
        for task, slot in enumerate(slots):
            self.move(query, task, executor(slot))

    def move(self, query: StreamingQuery, task: int, executor: Executor | None) -> None:
        if executor is not None:
            for store in self._stores(query, task):
                self._internals.place_state(query, store, executor)

    def locations(self, query: StreamingQuery) -> list[str | None]:
        """Where Spark says that each task's state is; the first store speaks for the others."""
        return [self._internals.state_location(query, next(self._stores(query, task))) for task in range(self._tasks)]

    def _stores(self, query: StreamingQuery, task: int) -> Iterator[StatePartition]:
        checkpoint = self._internals.state_folder(query)
        for operator in range(self._operators):
            for name in self._names:
                yield StatePartition(checkpoint, operator, task, name)
