"""Slots follow the executors: lost, replaced, warmed, on a machine that is to leave. Spark is played by a fake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.cluster.binding import assign_slots
from penstock.cluster.model import Cluster, Slot
from penstock.cluster.provider import Executor
from penstock.engine.spark import slots as slots_module
from penstock.engine.spark.slots import Slots

CLUSTER = Cluster.of(["a", "b"], 1)
A, B = CLUSTER.slots


class FakeSpark:
    def __init__(self) -> None:
        self.now = [Executor("0", "a", 4), Executor("1", "b", 4)]
        self.unlisted: set[str] = set()
        self.warmed: list[str] = []
        self.fails_to_warm: set[str] = set()
        self.tries = 0

    def executors(self) -> list[Executor]:
        return [one for one in self.now if one.id not in self.unlisted]

    def executor_ids(self) -> frozenset[str]:
        return frozenset(one.id for one in self.now)

    def run_on(self, executors, function) -> list[bytes]:
        ids = [one.id for one in executors]
        if self.fails_to_warm & set(ids):
            self.tries += 1
            raise RuntimeError("it is gone")
        self.warmed += ids
        return [one.encode() for one in ids]


class FakeProvider:
    def __init__(self) -> None:
        self.cluster = CLUSTER
        self.previous: dict[Slot, Executor] = {}

    def bind(self, list_executors: Callable[[], list[Executor]], deadline: float) -> dict[Slot, Executor | None]:
        return self.bound(list_executors)

    def bound(self, list_executors: Callable[[], list[Executor]]) -> dict[Slot, Executor | None]:
        self.previous = assign_slots(self.cluster, list_executors(), self.previous)
        return dict(self.previous)

    def tend(self) -> list[str]:
        return []


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spark() -> FakeSpark:
    return FakeSpark()


@pytest.fixture
def slots(spark: FakeSpark, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slots_module, "WATCH_SECONDS", 3600)  # the tests look for themselves
    slots = Slots(FakeProvider(), spark, clock)
    slots.bind(1.0)
    yield slots
    slots.close()


def warmed(slots: Slots) -> None:
    for thread in list(slots._warming.values()):
        thread.join(10)


def test_slots_are_usable_once_their_executors_are_warm(slots: Slots, spark: FakeSpark) -> None:
    assert slots.usable() == {A, B}
    assert set(spark.warmed) == {"0", "1"}
    assert slots.executor(B).id == "1"
    assert not slots.look()


def test_a_lost_executor_and_its_replacement(slots: Slots, spark: FakeSpark) -> None:
    told, happened = [], []
    slots.listen(lambda: told.append(slots.usable()))
    slots.happened = lambda kind, text: happened.append((kind, text))
    spark.now.pop()
    assert slots.look()
    assert slots.usable() == {A}
    assert told == [{A}]
    assert happened == [("fault", "executor 1 of b/0 is gone")]
    assert slots.slot_of("1") == B, "what it ran is still known"
    spark.now.append(Executor("2", "b", 4))
    assert slots.look()
    warmed(slots)
    assert slots.usable() == {A, B}
    assert slots.executor(B).id == "2"
    assert told[-1] == {A, B}
    assert happened[-1] == ("recovery", "executor 2 is ready behind b/0")


def test_an_executor_that_is_not_listed_yet_is_looked_at_again(slots: Slots, spark: FakeSpark) -> None:
    spark.now[1] = Executor("2", "b", 4)
    spark.unlisted = {"2"}
    slots.look()
    assert slots.executor(B) is None
    spark.unlisted = set()
    assert slots.look()
    assert slots.executor(B).id == "2"


def test_an_executor_that_cannot_be_warmed_is_not_used_and_leaves_a_trace(
    slots: Slots, spark: FakeSpark, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    spark.now[1] = Executor("2", "b", 4)
    spark.fails_to_warm = {"2"}
    slots.look()
    warmed(slots)
    assert slots.usable() == {A}
    assert "executor 2 of b/0 could not be warmed: RuntimeError: it is gone" in "\n".join(caplog.messages)
    spark.fails_to_warm = set()
    clock.now += slots_module.FIRST_WAIT
    slots.look()
    warmed(slots)
    assert slots.usable() == {A, B}


def test_an_executor_that_cannot_be_warmed_is_tried_again_less_and_less_often(
    slots: Slots, spark: FakeSpark, clock: Clock
) -> None:
    happened: list[tuple[str, str]] = []
    slots.happened = lambda kind, text: happened.append((kind, text))
    spark.now.append(Executor("2", "b", 4))
    spark.now.remove(Executor("1", "b", 4))
    spark.fails_to_warm = {"2"}
    for _ in range(10):
        slots.look()
        warmed(slots)
    assert spark.tries == 1
    faults = [text for kind, text in happened if kind == "fault" and "warmed" in text]
    assert len(faults) == 1
    assert faults[0].startswith("executor 2 of b/0 could not be warmed")
    for _ in range(600):  # an hour
        clock.now += 6
        slots.look()
        warmed(slots)
    assert 100 < spark.tries < 130
    assert len([kind for kind, _ in happened if kind == "fault"]) == 2, "that it is gone, and that the next is cold"
    spark.fails_to_warm = set()
    clock.now += slots_module.LONGEST_WAIT
    slots.look()
    warmed(slots)
    assert slots.usable() == {A, B}
    assert happened[-1] == ("recovery", "executor 2 is ready behind b/0")
    assert not slots._cold


def test_an_executor_that_could_not_be_warmed_is_forgotten_when_it_goes(slots: Slots, spark: FakeSpark) -> None:
    spark.now[1] = Executor("2", "b", 4)
    spark.fails_to_warm = {"2"}
    slots.look()
    warmed(slots)
    assert set(slots._cold) == {"2"}
    spark.now.pop()
    slots.look()
    assert not slots._cold


def test_a_cold_slot_is_better_than_none(slots: Slots, spark: FakeSpark) -> None:
    spark.now = [Executor("2", "a", 4)]
    spark.fails_to_warm = {"2"}
    slots.look()
    warmed(slots)
    assert slots.usable() == {A}


def test_a_machine_that_is_to_leave_is_no_fault(slots: Slots, spark: FakeSpark) -> None:
    happened = []
    slots.happened = lambda kind, text: happened.append(kind)
    with slots.without([B]):
        assert slots.usable() == {A}
        spark.now.pop()
        slots.look()
    assert happened == []
    slots.look()
    assert slots.usable() == {A}


def test_a_machine_that_was_to_leave_and_stayed_is_there_again(slots: Slots) -> None:
    with slots.without([B]):
        slots.look()
    slots.look()
    assert slots.usable() == {A, B}


def test_a_listener_that_is_forgotten_hears_nothing(slots: Slots, spark: FakeSpark) -> None:
    def never() -> None:
        raise AssertionError("forgotten")

    slots.listen(never)
    slots.forget(never)
    slots.forget(never)
    spark.now.pop()
    slots.look()


def test_executors_that_are_gone_for_long_are_forgotten(slots: Slots, spark: FakeSpark) -> None:
    """A cluster whose executors come and go for weeks; each batch looks up where it ran."""
    for number in range(2, 1002):
        spark.now = [Executor("0", "a", 4), Executor(str(number), "b", 4)]
        slots.look()
    known = slots.by_executor()
    assert len(known) <= slots_module.REMEMBERED_EXECUTORS + 2
    assert (known["0"], known["1001"], known["1000"]) == (A.name, B.name, B.name)
    assert slots.slot_of("1000") == B
    assert slots.by_executor() is known, "it is not made anew for every batch"
    assert len(slots._warm) <= len(known) + 1
