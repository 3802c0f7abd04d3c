"""Which bundles of a turn that begins cannot come before others leave."""

from __future__ import annotations

from penstock.cluster.provider import Executor
from penstock.engine.spark.streams import TaskThreads
from penstock.engine.standing.crowding import CROWDED_SECONDS, LOOK_SECONDS, Crowding

FIRST, SECOND = Executor("1", "127.0.0.2", 2), Executor("2", "127.0.0.3", 2)


class Looks:
    """What Spark says, and how late it is."""

    def __init__(self, *executors: Executor | None) -> None:
        self.now, self.asked = 100.0, 0
        self.threads: TaskThreads | None = None
        self._crowding = Crowding(executors, self._ask, lambda: self.now)

    def _ask(self) -> TaskThreads | None:
        self.asked += 1
        return self.threads

    def has(self, *begun: int, **held: int) -> None:
        self.threads = TaskThreads(frozenset(begun), {executor[1:]: count for executor, count in held.items()})

    def after(self, seconds: float) -> int:
        """How many are crowded out after so long, with a look as often as there may be one."""
        out, until = 0, self.now + seconds
        while self.now < until:
            self.now += LOOK_SECONDS
            out = self._crowding.out()
        return out

    def at_once(self) -> int:
        return self._crowding.out()


def test_nobody_is_asked_about_bundles_that_come_at_once() -> None:
    looks = Looks(FIRST)
    assert looks.at_once() == 0
    assert looks.asked == 0


def test_a_bundle_on_a_full_executor_is_crowded_out_after_a_while() -> None:
    looks = Looks(FIRST, SECOND)
    looks.has(_1=2, _2=2)
    assert looks.after(CROWDED_SECONDS) == 0
    assert looks.after(LOOK_SECONDS) == 2
    assert looks.at_once() == 0, "between two looks nobody knows"
    assert looks.after(LOOK_SECONDS) == 2


def test_a_bundle_whose_task_has_begun_is_on_its_way() -> None:
    looks = Looks(FIRST, SECOND)
    looks.has(0, _1=2, _2=2)
    assert looks.after(5) == 1


def test_a_bundle_whose_executor_has_threads_waits_only_for_spark() -> None:
    looks = Looks(FIRST, SECOND, None)
    looks.has(_1=1)
    assert looks.after(5) == 0


def test_a_job_that_spark_does_not_know_yet_waits_for_no_thread() -> None:
    looks = Looks(FIRST)
    assert looks.after(5) == 0
    looks.has(_1=2)
    assert looks.after(CROWDED_SECONDS) == 0
    assert looks.after(LOOK_SECONDS) == 1


def test_who_has_found_a_thread_in_between_counts_from_anew() -> None:
    looks = Looks(FIRST)
    looks.has(_1=2)
    looks.after(CROWDED_SECONDS)
    looks.has(0, _1=2)
    assert looks.after(LOOK_SECONDS) == 0
    looks.has(_1=2)
    assert looks.after(CROWDED_SECONDS) == 0
    assert looks.after(LOOK_SECONDS) == 1
