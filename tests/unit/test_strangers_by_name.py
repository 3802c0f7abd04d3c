"""A policy and a mapping of a package that Penstock knows nothing of, found by name and used without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from installed_strangers import installed
from monitor_fakes import A0, A1, B0, B1, CLUSTER, DEFINITION, PLACEMENT

from penstock import PenstockError, Settings, plugins
from penstock.autoscaler.policy import Decided, Fate, View, decide, policy, view_of
from penstock.autoscaler.proposals import Nothing, Prediction, Proposal
from penstock.cluster.model import Slot
from penstock.monitor.snapshot import Backlog, OperatorSnapshot, Snapshot
from penstock.plans.enacting import Enactor, Status
from penstock.plans.plan import SetInstances
from penstock.plans.requests import so_many_instances
from penstock.strategies import mapping
from penstock.strategies.mapping import NoRoom, Wanted
from penstock.testing import RecordingEngine

POLICY, MAPPING = "one_more", "last_slot_first"


@pytest.fixture(autouse=True)
def strangers(tmp_path: Path) -> Iterator[None]:
    with installed(tmp_path):
        yield


def view() -> View:
    operators = {
        name: OperatorSnapshot(name, kind, 1, backlog=Backlog(rows))
        for name, kind, rows in (("rows", "source", 9), ("work", "map", 70), ("out", "sink", 5))
    }
    found = Snapshot(DEFINITION, CLUSTER, PLACEMENT, 0.0, 60.0, 6, operators, {}, {}, {}, {})
    return view_of(found, Settings(strategy=POLICY))


def test_they_are_known_by_name() -> None:
    assert POLICY in plugins.names(plugins.POLICIES)
    assert MAPPING in plugins.names(plugins.MAPPINGS)
    assert plugins.package_of(plugins.POLICIES, POLICY) == "penstock-strangers"
    assert Settings(strategy=POLICY, mapping=MAPPING)


def test_the_policy_decides_and_its_plan_is_carried_out() -> None:
    answer = decide(POLICY, policy(POLICY), view())
    assert isinstance(answer, Proposal)
    assert answer.plan.actions == (SetInstances("work", {A1: 2, B0: 2}),)
    assert answer.reasons == ("70 rows wait in front of work, more than anywhere else",)
    assert answer.predictions == (Prediction("backlog_rows", 0.0, "work"),)
    engine = RecordingEngine(DEFINITION, CLUSTER, PLACEMENT)
    assert Enactor(engine).carry_out(answer.plan).status is Status.DONE
    assert engine.calls == ["place"]
    assert engine.planned.of("work") == {A1: 2, B0: 2}
    later = replace(view(), history=(Decided(1.0, answer, Fate.RUNNING, 1),))
    assert isinstance(decide(POLICY, policy(POLICY), later), Nothing)


def test_the_mapping_says_where_a_topology_starts() -> None:
    placement = mapping.start(MAPPING, Wanted.at_start(DEFINITION, CLUSTER))
    assert placement.instances == {"rows": {B1: 1}, "work": {B1: 2}, "out": {B1: 1}}
    engine = RecordingEngine(DEFINITION, CLUSTER, placement)
    plan = so_many_instances(DEFINITION, placement, CLUSTER, "work", 4, MAPPING)
    assert not isinstance(plan, NoRoom)
    assert Enactor(engine).carry_out(plan).status is Status.DONE
    assert engine.planned.of("work") == {B1: 4}


def test_no_room_is_a_value_until_a_topology_is_to_start() -> None:
    tight = Wanted.at_start(DEFINITION, CLUSTER, slot_instances=1)
    assert mapping.start(MAPPING, tight).instances["work"] == {B0: 1, A1: 1}
    none_left = replace(tight, instances={"rows": 1, "work": 4, "out": 1})
    assert mapping.place(MAPPING, none_left) == NoRoom("all slots are full", 2)
    with pytest.raises(PenstockError, match="2 too many") as caught:
        mapping.start(MAPPING, none_left)
    assert caught.value.name == "SLOT_FULL"


def test_a_mapping_that_answers_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Wanted.at_start(DEFINITION, CLUSTER)
    elsewhere = Slot("nowhere", 0)
    for wrong, why in (
        ({"rows": {A0: 1}, "work": {A0: 1}, "out": {A0: 1}}, '"work" has 1 instances, and 2 are wanted'),
        ({"rows": {elsewhere: 1}, "work": {A0: 2}, "out": {A0: 1}}, "it uses nowhere/0"),
    ):
        answer = replace(PLACEMENT, instances=wrong)
        monkeypatch.setattr("penstock_strangers.last_slot_first.LastSlotFirst.place", lambda *_, found=answer: found)
        with pytest.raises(PenstockError, match=why) as caught:
            mapping.start(MAPPING, wanted)
        assert caught.value.name == "BAD_PLACEMENT"
        assert MAPPING in caught.value.message


def test_a_mapping_that_fails_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object) -> None:
        raise KeyError("work")

    for place, why in ((raising, "KeyError"), (lambda *_: None, "it answered with NoneType")):
        monkeypatch.setattr("penstock_strangers.last_slot_first.LastSlotFirst.place", place)
        with pytest.raises(PenstockError, match=why) as caught:
            mapping.start(MAPPING, Wanted.at_start(DEFINITION, CLUSTER))
        assert caught.value.name == "PLUGIN_FAILED"
        assert "penstock-strangers" in caught.value.message
