"""What is planned and what is requested stay apart; what was observed last is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import PenstockError, Settings, Topology, sinks, sources
from penstock.channels.catalog import Catalog
from penstock.cluster.model import Cluster, Placement
from penstock.engine.run import arrangement
from penstock.engine.run.arrangement import Arrangement
from penstock.engine.run.starting_placement import StartingPlacement
from penstock.running import Observed
from penstock.topology.definition import TopologyDefinition

CLUSTER = Cluster.of(["a", "b"], 1, cores=2)
A, B = CLUSTER.slots


def keep(frame):
    return frame


def declared(instances: int = 2) -> TopologyDefinition:
    topology, schema = Topology("t"), "id long, value double"
    rows = topology.source("s", sources.rate(1, sources.numbers()))
    kept = topology.keyed("k", keep, inputs=[rows], key="id", schema=schema, tasks=4, instances=instances)
    topology.sink("out", sinks.noop(), inputs=[kept])
    return topology.definition()


PLANNED = Placement({"s": {A: 1}, "k": {A: 1, B: 1}, "out": {B: 1}}, {"k": (A, B, A, B)})


@pytest.fixture
def catalog(tmp_path: Path):
    catalog = Catalog.open(f"sqlite:///{tmp_path / 'catalog.sqlite'}", "t", synchronous="NORMAL")
    yield catalog
    catalog.close()


def test_what_is_requested_follows_the_slots_and_the_plan_stays() -> None:
    usable = [frozenset({A, B})]
    arranged = Arrangement(PLANNED, lambda: usable[0])
    assert arranged.requested == PLANNED
    assert arranged.changed_at == 0.0
    usable[0] = frozenset({A})
    assert arranged.requested.slots == {A}
    assert arranged.planned is PLANNED
    lost_at = arranged.changed_at
    assert lost_at > 0
    assert arranged.requested is arranged.requested, "computed once"
    usable[0] = frozenset({A, B})
    assert arranged.requested == PLANNED
    assert arranged.changed_at >= lost_at


def test_another_plan_is_requested_at_once() -> None:
    arranged = Arrangement(PLANNED, lambda: frozenset({A, B}))
    other = Placement({**PLANNED.instances, "out": {A: 1}}, PLANNED.tasks)
    arranged.plan(other)
    assert arranged.requested == other == arranged.planned


def test_a_placement_is_remembered_with_the_slots_of_this_cluster(catalog: Catalog) -> None:
    assert arrangement.recorded(catalog, declared(), CLUSTER) is None
    arrangement.record(catalog, declared(), PLANNED)
    again = arrangement.recorded(catalog, declared(), CLUSTER)
    assert again == PLANNED
    assert {slot.cores for slot in again.slots} == {2}, "a slot's cores are the cluster's, and not remembered"


def test_slots_that_are_not_there_any_more_are_repaired(catalog: Catalog) -> None:
    arrangement.record(catalog, declared(), PLANNED)
    smaller = Cluster.of(["a"], 1)
    assert arrangement.recorded(catalog, declared(), smaller).slots == set(smaller.slots)


def test_a_user_who_declares_other_instances_gets_them(catalog: Catalog) -> None:
    arrangement.record(catalog, declared(2), PLANNED)
    assert arrangement.recorded(catalog, declared(3), CLUSTER) is None


def test_a_change_that_was_under_way_is_known(catalog: Catalog) -> None:
    assert arrangement.unfinished_change(catalog) == ""
    arrangement.note_change(catalog, "k: task 0 on b/0")
    assert arrangement.unfinished_change(catalog) == "k: task 0 on b/0"
    arrangement.note_change(catalog, "")
    assert arrangement.unfinished_change(catalog) == ""


@pytest.mark.parametrize(
    ("seen", "agrees"),
    [
        (Observed(1, 0.0, {A: 1}, {0: A, 1: B}), True),
        (Observed(1, 0.0, {}, {}), True),
        (Observed(1, 0.0, {A: 1}, {0: B}), False),
        (Observed(1, 0.0, {A: 1}, {9: A}), False),
        (Observed(1, 0.0, {A: 1}, {}, frozenset({"7"})), False),
    ],
)
def test_what_is_seen_agrees_with_a_placement_or_not(seen: Observed, agrees: bool) -> None:
    assert seen.agrees("k", PLANNED) is agrees
    assert not Observed(1, 0.0, {B: 1}).agrees("s", PLANNED)


def recorded_placement(
    catalog: Catalog, otherwise: Placement | None, monkeypatch: pytest.MonkeyPatch
) -> Placement | None:
    """Of a run whose mapping answers so to the question with chains the other way round; None is an error."""

    def mapped(starting: StartingPlacement, chains: bool) -> Placement:
        if otherwise is None:
            raise PenstockError("SLOT_FULL", "it does not fit without chains.", "Give more machines or slots.")
        return otherwise

    monkeypatch.setattr(StartingPlacement, "_mapped", mapped)
    return StartingPlacement(declared(), CLUSTER, Settings()).recorded(catalog)


def test_what_fits_only_with_chains_starts_again_where_it_was(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recorded_placement(catalog, None, monkeypatch) is None, "nothing is recorded, and nobody is asked"
    arrangement.record(catalog, declared(), PLANNED)
    assert recorded_placement(catalog, None, monkeypatch) == PLANNED
    assert recorded_placement(catalog, Placement({}, {}), monkeypatch) == PLANNED
    assert recorded_placement(catalog, PLANNED, monkeypatch) is None
