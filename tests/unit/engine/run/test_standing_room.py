"""Bundles stand only where every one of them can have a task thread."""

from __future__ import annotations

import pytest

from penstock import Topology, sinks, sources
from penstock.cluster.model import Slot
from penstock.engine.run.standing_room import lacking_threads

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
