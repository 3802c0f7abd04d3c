"""Which state partitions a keyed operator has, and how Spark is told where they are to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.cluster.model import Slot
from penstock.cluster.provider import Executor
from penstock.engine.spark.internals import SparkInternals
from penstock.engine.spark.state_partitions import StatePartition, state_folder
from penstock.engine.spark.stream_plans import stateful_operators

DEFAULT_STORE = "default"
#: A join of two streams keeps four stores a partition.
JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)


class StatePlacer:
    """Tells Spark where the state of one running query is to be, and remembers what it has told."""

    def __init__(self, internals: SparkInternals, frame: DataFrame, tasks: int) -> None:
        self._internals = internals
        self._tasks = tasks
        self._operators, joins = stateful_operators(frame)
        # Spark asks for a store by name; a name that the query does not have is never asked for.
        self._names = (DEFAULT_STORE, *JOIN_STORES) if joins else (DEFAULT_STORE,)
        #: Where Spark was last told that each task is to be.
        self._told: dict[int, Executor] = {}
        #: Which tasks have run on an executor, in this run; of executors that are there.
        self._been: dict[str, set[int]] = {}

    @property
    def stateful(self) -> bool:
        """Whether the query keeps any state."""
        return self._operators > 0

    def settle(self, query: StreamingQuery, slots: Sequence[Slot], executor: Callable[[Slot], Executor | None]) -> None:
        """Have every task run on its slot from the next micro-batch on. It must be called between two micro-batches: a
        task that runs tells Spark itself where it is, and Spark believes who spoke last.

        Only a task whose slot, or whose slot's executor, has changed costs anything."""
        for task, slot in enumerate(slots):
            wanted = executor(slot)
            if wanted is not None and self._told.get(task) != wanted:
                for store in self._stores(query, task):
                    self._internals.place_state(query, store, wanted)
                self._told[task] = wanted

    def ran(self, executors: Mapping[int, str | None]) -> None:
        """Note where tasks have run. A task that Spark ran elsewhere has its state there now, so Spark must be told
        again where it is to be."""
        for task, executor in executors.items():
            if executor is not None:
                if executor not in self._been:
                    # Executors come and go for as long as a topology runs: those that are gone are forgotten here.
                    there = self._internals.executor_ids()
                    self._been = {one: tasks for one, tasks in self._been.items() if one in there} | {executor: set()}
                self._been[executor].add(task)
            told = self._told.get(task)
            if told is not None and executor is not None and told.id != executor:
                del self._told[task]

    def been_on(self, executor: Executor) -> frozenset[int]:
        """The tasks that have run on this executor: it may still have most of their state, and needs only what came
        since. An executor drops the state of a task that has been elsewhere for half a minute (session.py)."""
        return frozenset(self._been.get(executor.id, ()))

    def locations(self, query: StreamingQuery) -> list[str | None]:
        """Where Spark says that each task's state is; the first store speaks for the others."""
        return [self._internals.state_location(query, next(self._stores(query, task))) for task in range(self._tasks)]

    def _stores(self, query: StreamingQuery, task: int) -> Iterator[StatePartition]:
        checkpoint = state_folder(query)
        for operator in range(self._operators):
            for name in self._names:
                yield StatePartition(checkpoint, operator, task, name)
