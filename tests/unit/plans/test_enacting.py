"""Plans are carried out in order, refused as a whole, rolled back as a whole: on the recording double."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from penstock import PenstockError, Topology, sinks, sources
from penstock.cluster.model import Cluster, Slot
from penstock.plans import requests as plans
from penstock.plans.enacting import Enactor, Status
from penstock.plans.plan import AddMachine, MoveTask, Plan, RemoveMachine, SetInstances
from penstock.testing import RecordingEngine

A, B = Slot("a", 0), Slot("b", 0)
[NEW] = Cluster.of(["c"], 1).machines
C = NEW.slots[0]
LOST = PenstockError("CLUSTER_FAILED", "c/0 was lost.", "")
FULL = PenstockError("CATALOG_UNREACHABLE", "the disk is full.", "")


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def keep(frame):
    return frame


@pytest.fixture
def engine() -> RecordingEngine:
    declared, schema = Topology("t"), "id long, value double"
    rows = declared.source("s", sources.rate(1, sources.numbers()))
    mapped = declared.map("m", same, inputs=[rows], schema=schema, instances=2)
    keyed = declared.keyed("k", keep, inputs=[mapped], key="id", schema=schema, tasks=4, instances=2)
    declared.sink("out", sinks.noop(), inputs=[keyed])
    return RecordingEngine(declared.definition(), Cluster.of(["a", "b"], 1))


def test_machines_come_first_and_go_last(engine: RecordingEngine) -> None:
    moves = plans.remove_machines(engine.planned, engine.cluster, ["b"]).actions
    outcome = Enactor(engine).carry_out(Plan((*moves, AddMachine(NEW), SetInstances("m", {C: 3})), "why not"))
    assert outcome.status is Status.DONE
    assert outcome.reason == "why not"
    assert engine.calls == ["add machine c", "place", "remove machine b"]
    assert outcome.steps[0].what == "add machine c"
    assert engine.cluster.names == ("a", "c")
    assert dict(engine.planned.of("m")) == {C: 3}
    assert engine.noted == ""


def test_moves_are_reported_from_and_to(engine: RecordingEngine) -> None:
    was = engine.planned.tasks["k"]
    outcome = Enactor(engine).carry_out(plans.move_tasks("k", {0: B, 1: B, 2: A}))
    assert [(move.task, move.origin, move.slot) for move in outcome.placed.moves] == [
        (task, was[task], slot) for task, slot in {0: B, 1: B, 2: A}.items() if was[task] != slot
    ]


def test_every_operator_whose_tasks_move_has_a_migration(engine: RecordingEngine) -> None:
    was = engine.planned.tasks["k"]
    engine.state_bytes["k"] = [10, 20, 30, 40]
    enactor = Enactor(engine)
    [task, *_] = [task for task, slot in enumerate(was) if slot == A]
    [moved] = enactor.carry_out(plans.move_tasks("k", {task: B})).placed.migrations
    assert (moved.operator, moved.tasks, moved.tasks_of_operator) == ("k", (task,), 4)
    assert (moved.moved_bytes, moved.state_bytes) == (engine.state_bytes["k"][task], 100)
    assert moved.pause_seconds is moved.save_seconds is moved.load_seconds is moved.resume_seconds is None
    enactor.carry_out(Plan((SetInstances("m", {A: 3}),)))
    [kept] = enactor.migrations.since()
    assert (kept.id, kept.change, kept.migrations) == (1, "place 1 task", (moved,))


def test_state_that_moved_is_listed_even_if_the_change_is_rolled_back_after_that(engine: RecordingEngine) -> None:
    engine.fails["remove machine b"] = LOST
    enactor = Enactor(engine)
    outcome = enactor.carry_out(plans.remove_machines(engine.planned, engine.cluster, ["b"]))
    assert outcome.status is Status.ROLLED_BACK
    assert [one.operator for kept in enactor.migrations.since() for one in kept.migrations] == ["k"]


def test_what_does_not_get_as_far_as_moving_state_is_not_listed(engine: RecordingEngine) -> None:
    engine.fails["place"] = LOST
    enactor = Enactor(engine)
    assert enactor.carry_out(plans.move_tasks("k", {0: B, 1: B, 2: A})).status is Status.ROLLED_BACK
    assert enactor.migrations.since() == []


def test_twice_is_once(engine: RecordingEngine) -> None:
    enactor = Enactor(engine)
    moves = plans.remove_machines(engine.planned, engine.cluster, ["b"]).actions
    plan = Plan((AddMachine(NEW), *moves, SetInstances("m", {C: 1, A: 1})))
    assert enactor.carry_out(plan).status is Status.DONE
    calls, planned = list(engine.calls), engine.planned
    assert enactor.carry_out(plan).status is Status.NOTHING
    assert engine.calls == calls
    assert engine.planned == planned


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (Plan((RemoveMachine("z"),)), "NO_SUCH_MACHINE"),
        (Plan((RemoveMachine("a"), RemoveMachine("b"))), "LAST_MACHINE"),
        (Plan((MoveTask("k", 9, A),)), "NO_SUCH_TASK"),
        (Plan((SetInstances("m", {A: 200}),)), "SLOT_FULL"),
        (Plan((AddMachine(NEW), SetInstances("nobody", {C: 1}))), "BAD_PLACEMENT"),
    ],
)
def test_what_is_refused_changes_nothing(engine: RecordingEngine, plan: Plan, name: str) -> None:
    planned = engine.planned
    with pytest.raises(PenstockError) as caught:
        Enactor(engine).carry_out(plan)
    assert caught.value.name == name
    assert engine.calls == []
    assert engine.planned == planned


def test_a_machine_that_does_not_come_rolls_back(engine: RecordingEngine) -> None:
    before = engine.planned
    engine.fails["add machine c"] = PenstockError("CLUSTER_FAILED", "it did not come up.", "")
    outcome = Enactor(engine).carry_out(Plan((AddMachine(NEW), SetInstances("m", {C: 1}))))
    assert outcome.status is Status.ROLLED_BACK
    assert "did not come up" in outcome.reason
    assert engine.planned == before
    assert engine.noted == ""


def test_a_placement_that_is_not_seen_rolls_back_and_the_new_machine_goes(engine: RecordingEngine) -> None:
    before = engine.planned
    engine.fails["place"] = LOST
    outcome = Enactor(engine).carry_out(Plan((AddMachine(NEW), SetInstances("m", {C: 1}))))
    assert outcome.status is Status.ROLLED_BACK
    assert engine.calls == ["add machine c", "place", "restore", "remove machine c"]
    assert engine.planned == before
    assert engine.cluster.names == ("a", "b")
    del engine.fails["place"]
    assert Enactor(engine).carry_out(Plan((AddMachine(NEW),))).status is Status.DONE, "it can be tried again"


def test_a_machine_that_cannot_be_removed_again_is_told(engine: RecordingEngine) -> None:
    engine.fails |= {"place": LOST, "remove machine c": PenstockError("CLUSTER_FAILED", "it stays.", "")}
    outcome = Enactor(engine).carry_out(Plan((AddMachine(NEW), SetInstances("m", {C: 1}))))
    assert "it stays" in outcome.reason


def test_a_roll_back_that_fails_still_removes_the_new_machine_and_tells_both_reasons(engine: RecordingEngine) -> None:
    engine.fails |= {"place": LOST, "restore": FULL}
    outcome = Enactor(engine).carry_out(Plan((AddMachine(NEW), SetInstances("m", {C: 1}))))
    assert outcome.status is Status.ROLLED_BACK
    assert outcome.error == LOST.name
    assert "c/0 was lost" in outcome.reason
    assert "the disk is full" in outcome.reason
    assert engine.cluster.names == ("a", "b")
    assert engine.noted == ""


def test_a_change_that_is_done_is_done_even_if_its_note_stays(engine: RecordingEngine) -> None:
    engine.fails["clear the note"] = FULL
    enactor = Enactor(engine)
    outcome = enactor.carry_out(Plan((SetInstances("m", {A: 3}),), "why not"))
    assert outcome.status is Status.DONE
    assert outcome.reason.startswith("why not; ")
    assert "the disk is full" in outcome.reason
    del engine.fails["clear the note"]
    assert enactor.carry_out(Plan((SetInstances("m", {A: 1}),))).status is Status.DONE
    assert engine.noted == ""


def test_a_change_without_a_reason_whose_note_stays_says_only_that(engine: RecordingEngine) -> None:
    engine.fails["clear the note"] = FULL
    outcome = Enactor(engine).carry_out(Plan((SetInstances("m", {A: 3}),)))
    assert outcome.reason.startswith("the note of this change")


def test_a_roll_back_is_one_even_if_its_note_stays(engine: RecordingEngine) -> None:
    engine.fails |= {"place": LOST, "clear the note": FULL}
    outcome = Enactor(engine).carry_out(Plan((AddMachine(NEW), SetInstances("m", {C: 1}))))
    assert outcome.status is Status.ROLLED_BACK
    assert outcome.error == LOST.name
    assert "c/0 was lost" in outcome.reason
    assert "the disk is full" in outcome.reason


def test_a_change_that_cannot_be_noted_is_refused(engine: RecordingEngine) -> None:
    engine.fails["note"] = FULL
    with pytest.raises(PenstockError) as caught:
        Enactor(engine).carry_out(Plan((SetInstances("m", {A: 3}),)))
    assert caught.value is FULL
    assert engine.calls == []


def test_a_machine_that_cannot_be_removed_rolls_back(engine: RecordingEngine) -> None:
    before = engine.planned
    engine.fails["remove machine b"] = PenstockError("CLUSTER_FAILED", "it stays.", "")
    outcome = Enactor(engine).carry_out(plans.remove_machines(engine.planned, engine.cluster, ["b"]))
    assert outcome.status is Status.ROLLED_BACK
    assert engine.planned == before


def test_a_machine_may_come_under_another_name(engine: RecordingEngine) -> None:
    [planned] = Cluster.of(["new-1"], 1).machines
    engine.comes_as["new-1"] = NEW
    plan = Plan((AddMachine(planned), SetInstances("m", {planned.slots[0]: 2}), MoveTask("k", 0, planned.slots[0])))
    enactor = Enactor(engine)
    assert enactor.carry_out(plan).status is Status.DONE
    assert dict(engine.planned.of("m")) == {C: 2}
    assert engine.planned.tasks["k"][0] == C
    assert enactor.carry_out(plan).status is Status.NOTHING


def test_one_at_a_time_and_cancelled_by_another_thread(engine: RecordingEngine) -> None:
    enactor, before = Enactor(engine), engine.planned
    assert not enactor.cancel()
    inside, go_on = threading.Event(), threading.Event()

    def wait(call: str) -> None:
        if call == "place":
            inside.set()
            assert go_on.wait(10)

    engine.meanwhile = wait
    outcomes = []
    plan = plans.move_tasks("k", {0: B, 2: B})
    thread = threading.Thread(target=lambda: outcomes.append(enactor.carry_out(plan)))
    thread.start()
    assert inside.wait(10)
    assert enactor.current == plan
    assert "task" in enactor.step
    assert "task" in engine.noted
    with pytest.raises(PenstockError) as caught:
        enactor.carry_out(plan)
    assert caught.value.name == "BUSY"
    assert enactor.cancel()
    go_on.set()
    thread.join(10)
    assert outcomes[0].status is Status.ROLLED_BACK
    assert "cancelled" in outcomes[0].reason
    assert engine.planned == before
    engine.meanwhile = lambda call: None
    assert enactor.carry_out(plan).status is Status.DONE


def test_slots_that_were_planned_apart_and_come_as_one_keep_all_instances(engine: RecordingEngine) -> None:
    engine.comes_as["c"] = engine.cluster.machines[0]
    outcome = Enactor(engine).carry_out(Plan((AddMachine(NEW), SetInstances("m", {A: 1, B: 1, C: 2}))))
    assert outcome.status is Status.DONE, outcome.reason
    assert dict(engine.planned.of("m")) == {A: 3, B: 1}
