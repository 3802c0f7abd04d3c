"""Which bundles of a turn that begins cannot come before others leave: their executors have no task thread for them.

An executor may have just the threads that its bundles need. While one turn takes the place of another, it would need
threads for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.cluster.provider import Executor
from penstock.engine.spark.streams import TaskThreads

#: How often Spark is asked. Most turns stand before it is asked at all.
LOOK_SECONDS = 0.25
#: Who finds no thread for so long may find none for as long as the turn before stands.
CROWDED_SECONDS = 0.5


class Crowding:
    """Of one turn, while it begins."""

    def __init__(
        self,
        executors: Sequence[Executor | None],
        look: Callable[[], TaskThreads | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`look` asks Spark who has the threads; it says None if no executor is full, while Spark does not know the job
        of the turn, or where nobody can say."""
        self._executors = executors
        self._ask = look
        self._clock = clock
        self._look_at = clock() + LOOK_SECONDS
        #: The bundles that find no thread, and since when.
        self._since: dict[int, float] = {}

    def out(self) -> int:
        """How many bundles are crowded out, if Spark was asked just now. Between two looks it is 0: a bundle that has
        come since the last one would count as both."""
        now = self._clock()
        if now < self._look_at:
            return 0
        threads = self._ask()
        now = self._clock()
        self._look_at = now + LOOK_SECONDS
        found = self._without_thread(threads) if threads is not None else []
        self._since = {index: self._since.get(index, now) for index in found}
        return sum(now >= since + CROWDED_SECONDS for since in self._since.values())

    def _without_thread(self, threads: TaskThreads) -> list[int]:
        """The bundles whose tasks have not begun, and whose executors have no thread left. A task that has begun is on
        its way, though it may load a model first. And one that has not, on an executor that has threads, only waits
        for Spark."""
        return [
            index
            for index, one in enumerate(self._executors)
            if one is not None and index not in threads.begun and threads.held.get(one.id, 0) >= one.cores
        ]
