"""Bundles stand only where every one of them can have a task thread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from no_standing_room import NO_ROOM, no_standing_room

from penstock import Topology, sinks, sources
from penstock.cluster.model import Slot
from penstock.engine.query.standing_room import StandingRoom, lacking_threads, room_on

ONE_CORE = [Slot("a", 0), Slot("b", 0)]


def same(rows):
    return rows


def three(keyed: bool = False) -> Topology:
    made = Topology("three")
    numbers = made.source("numbers", sources.rate(1, sources.numbers()))
    if keyed:
        out = made.keyed("same", same, inputs=numbers, key="id", schema="id long, value double")
    else:
        out = made.map("same", same, inputs=numbers, schema="id long, value double")
    made.sink("out", sinks.noop(), inputs=out)
    return made


@pytest.mark.parametrize(
    ("threads", "shared", "keyed", "lacks"),
    [
        ([3, 3], False, False, False),
        ([3, 2], False, False, True),
        ([3, 3], False, True, False),
        ([2, 2], False, True, True),
        ([6], True, False, False),
        ([5], True, False, True),
        ([], False, False, False),
    ],
)
def test_every_bundle_needs_a_thread_and_micro_batches_need_one(
    threads: list[int], shared: bool, keyed: bool, lacks: bool
) -> None:
    operators = three(keyed).definition().operators
    assert bool(lacking_threads(operators, ONE_CORE, threads, shared)) == lacks


def test_a_slot_with_more_cores_has_more_bundles() -> None:
    operators = three().definition().operators
    why = lacking_threads(operators, [Slot("a", 0, 2)], [5], False)
    assert "5 Spark tasks" in why
    assert "6 may have to" in why


def host(*threads: int, parallelism: int = 1) -> Any:
    """A host with an executor of so many task threads on each slot; without any, all slots share the driver's."""
    return SimpleNamespace(
        slots=SimpleNamespace(executors=lambda: [SimpleNamespace(cores=one) for one in threads]),
        spark=SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=parallelism)),
        cluster=SimpleNamespace(slots=ONE_CORE),
    )


@pytest.mark.parametrize(
    ("found", "enough"),
    [(host(3, 3), True), (host(3, 2), False), (host(parallelism=6), True), (host(parallelism=5), False)],
)
def test_the_executors_of_a_host_say_whether_bundles_stand(found: Any, enough: bool) -> None:
    operators = three().definition().operators
    room = room_on(found, operators)
    assert bool(room.lacking) != enough
    assert [room.stands(one) for one in operators] == [enough] * 3
    assert [room.cannot_stand(one) for one in operators] == [not enough] * 3


@pytest.mark.parametrize("room", [StandingRoom(), NO_ROOM])
def test_a_keyed_operator_never_stands(room: StandingRoom) -> None:
    keyed = three(keyed=True).definition().operator("same")
    assert not room.stands(keyed)
    assert not room.cannot_stand(keyed)


def test_tests_can_have_no_room_on_any_host() -> None:
    with no_standing_room():
        assert room_on(host(99, 99), three().definition().operators) == NO_ROOM
    assert room_on(host(99, 99), three().definition().operators) == StandingRoom()
