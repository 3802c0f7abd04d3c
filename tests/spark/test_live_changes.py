"""A running topology takes every kind of change under load: each row arrives once, in order, and is counted once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from conftest import TEST_SETTINGS
from processors import Counting
from steered import check_everything, steered
from written_rows import WAIT

from penstock import PenstockError
from penstock.cluster import standalone
from penstock.cluster.model import Placement, Slot
from penstock.engine.spark.host import SparkHost
from penstock.engine.topology import SparkTopology
from penstock.plans import requests as plans
from penstock.plans.enacting import Outcome, Status
from penstock.plans.plan import MoveTask, Plan, RemoveMachine, SetInstances, diff
from penstock.running import Changes

RATE = 500.0
#: Two processes of tests on two cores: a machine with two executors may take minutes to come up.
SETTINGS = replace(TEST_SETTINGS, change_seconds=120, drain_seconds=120, cluster_timeout=240)


def until(run: SparkTopology, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, f"it took too long until {what}"
        run.wait(0.05)


def flowing(run: SparkTopology) -> None:
    """Wait until both sinks get rows, from now on."""
    seen = {sink: run.statistics.batches(sink) for sink in ("rows", "counts")}
    until(run, lambda: all(run.statistics.batches(sink) > seen[sink] + 1 for sink in seen), "both sinks have rows")


def drain_and_check(run: SparkTopology, folder: Path) -> None:
    assert run.stop(), "everything that was emitted must arrive"
    emitted = run.query("events").feeds[0].position
    assert emitted > 0
    check_everything(folder, emitted)


def done(outcome: Outcome) -> Outcome:
    assert outcome.status is Status.DONE, outcome.reason
    return outcome


def check_migration(run: SparkTopology, outcome: Outcome) -> None:
    """The report of the move of three of four tasks of "count", the first move of this run."""
    moves, [moved] = outcome.placed.moves, outcome.placed.migrations
    assert (moved.operator, moved.tasks, moved.tasks_of_operator) == ("count", (0, 2, 3), 4)
    assert moved.moved_bytes == sum(move.state_bytes for move in moves)
    assert moved.share is not None and 0 < moved.share < 1, "task 1 has state too, and stays"
    assert [one.migrations for one in run.changes.migrations.since()] == [(moved,)]

    # The phases lie between the request and the second barrier, which is the batch after the first one.
    first, second = moved.barriers.first, moved.barriers.second
    assert first is not None and second is not None
    assert second.batch == first.batch + 1
    assert moved.pause_seconds is not None and moved.pause_seconds >= 0
    assert moved.resume_seconds is not None and moved.resume_seconds > 0
    assert moved.pause_seconds + moved.resume_seconds <= outcome.seconds
    assert moved.save_seconds is not None, "Spark tells how long it took to commit"
    assert moved.load_seconds == max(move.load_seconds for move in moves if move.load_seconds is not None)
    told = [(event.subject, dict(event.fields)) for event in run.events.since(0) if "barrier" in event.fields]
    assert [(subject, fields["barrier"], fields["batch"]) for subject, fields in told] == [
        ("count", "first", first.batch),
        ("count", "second", second.batch),
    ]

    # What does not lead to the tasks that move flows on; who gets rows from them is told apart.
    others = {flow.operator: flow for flow in moved.others}
    assert set(others) == {"events", "tag", "rows", "counts"}
    assert {name for name, flow in others.items() if flow.behind} == {"counts"}
    assert others["tag"].rows_per_second_during > 0
    assert moved.own is not None and moved.own.gap_seconds > 0


def refused(changes: Changes, *actions) -> str:
    with pytest.raises(PenstockError) as caught:
        changes.carry_out(Plan(actions))
    return caught.value.name


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.parametrize("processor", [None, Counting], ids=["aggregation", "own-state"])
def test_instances_tasks_and_machines_change_under_load(standalone_host, running, tmp_path: Path, processor) -> None:
    slots = standalone_host.cluster.slots
    start = Placement(
        {name: {slots[0]: 1} for name in ("events", "tag", "count", "rows", "counts")}, {"count": (slots[0],) * 4}
    )
    topology = steered(tmp_path, RATE, processor=processor)
    with running(topology, standalone_host, settings=SETTINGS, placement=start) as run:
        changes = run.changes
        flowing(run)

        # Instances: the next batch has the new split.
        done(changes.carry_out(plans.set_instances(run.placement, "tag", {slots[1]: 2, slots[2]: 1})))
        seen = run.placements.observed("tag")
        assert set(seen.instances) <= {slots[1], slots[2]}
        assert seen.agrees("tag", run.placement)

        # Tasks: three of four at once, and every move is reported.
        outcome = done(changes.carry_out(plans.move_tasks("count", {0: slots[3], 2: slots[3], 3: slots[1]})))
        assert [(move.task, move.origin, move.slot) for move in outcome.placed.moves] == [
            (0, slots[0], slots[3]),
            (2, slots[0], slots[3]),
            (3, slots[0], slots[1]),
        ]
        for move in outcome.placed.moves:
            assert move.state_bytes > 0
            assert move.interruption.gap_seconds > 0
        check_migration(run, outcome)
        assert run.placements.observed("count").tasks == {0: slots[3], 1: slots[0], 2: slots[3], 3: slots[1]}
        assert changes.carry_out(outcome.plan).status is Status.NOTHING

        # Which task is the cheapest to move: one that has been there.
        assert changes.cheapest_tasks("count", slots[3], slots[0], 1)[0] in (0, 2)
        assert set(changes.cheapest_tasks("count", slots[3], slots[0], 9)) == {0, 2}
        assert changes.cheapest_tasks("count", slots[2], slots[0], 9) == []

        # What cannot be is refused by name, and changes nothing.
        planned = run.placement
        assert refused(changes, RemoveMachine("127.0.0.99")) == "NO_SUCH_MACHINE"
        assert refused(changes, *(RemoveMachine(name) for name in standalone_host.cluster.names)) == "LAST_MACHINE"
        assert refused(changes, SetInstances("tag", {slots[0]: SETTINGS.slot_instances + 1})) == "SLOT_FULL"
        assert refused(changes, MoveTask("count", 4, slots[0])) == "NO_SUCH_TASK"
        assert refused(changes, SetInstances("tag", {Slot("nowhere", 0): 1})) == "BAD_PLACEMENT"
        assert run.placement is planned

        # A machine comes, takes work, and goes while it holds it.
        [machine] = standalone_host.provider.upcoming(1)
        new = machine.slots[0]
        done(changes.carry_out(plans.add_machines([machine])))
        assert set(machine.slots) <= standalone_host.slots.usable()
        assert not list(Path(run.context.checkpoints).glob(".warm-*")), "warming leaves nothing behind"
        done(changes.carry_out(plans.set_instances(run.placement, "count", {new: 1, slots[0]: 1})))
        assert set(run.placements.observed("count").tasks.values()) == {new, slots[0]}
        outcome = done(changes.carry_out(plans.remove_machines(run.placement, standalone_host.cluster, [machine.name])))
        assert {move.origin for move in outcome.placed.moves} == {new}
        assert machine.name not in standalone_host.cluster.names
        assert not any(executor.host == machine.name for executor in standalone_host.slots.executors())
        flowing(run)
        drain_and_check(run, tmp_path)


@pytest.mark.live
@pytest.mark.timeout(600)
def test_more_instances_than_tasks_after_a_repartition(standalone_host, running, tmp_path: Path) -> None:
    slots = standalone_host.cluster.slots
    six = {slots[0]: 2, slots[1]: 2, slots[2]: 2}
    with running(steered(tmp_path, RATE), standalone_host, state="kept", settings=SETTINGS) as run:
        changes = run.changes
        flowing(run)
        assert refused(changes, SetInstances("count", six)) == "BAD_PLACEMENT"
        for operator, tasks in (("tag", 8), ("count", 4), ("count", 1)):
            with pytest.raises(PenstockError) as caught:
                changes.repartition(operator, tasks)
            assert caught.value.name == "REPARTITION_FAILED"
        report = changes.repartition("count", 8)
        assert (report.tasks_before, report.tasks_after) == (4, 8)
        assert 0 < report.repartition_seconds < report.stopped_seconds
        done(changes.carry_out(plans.set_instances(run.placement, "count", six)))
        flowing(run)
        assert len(run.placements.observed("count").tasks) == 8
    # Started again, it has the tasks and the placement it had.
    with running(steered(tmp_path, RATE), standalone_host, state="kept", settings=SETTINGS) as run:
        assert dict(run.placement.of("count")) == six
        assert len(run.placement.tasks["count"]) == 8
        flowing(run)
        drain_and_check(run, tmp_path)


def processes_on(host: SparkHost, machine: str, name: str) -> list[int]:
    """Java processes of this test's own cluster, by the machine they are on."""
    mine = []
    for process in psutil.Process().children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if command and command[0].endswith("java") and any(name in word for word in command) and machine in command:
            mine.append(process.pid)
    return mine


@pytest.mark.live
@pytest.mark.timeout(600)
def test_what_is_lost_is_placed_elsewhere_until_it_is_back(standalone_host, running, tmp_path: Path) -> None:
    host: SparkHost = standalone_host
    slots = host.cluster.slots
    with running(steered(tmp_path, RATE), host, settings=SETTINGS) as run:
        flowing(run)

        # A whole machine is lost with its worker: everything is placed on the other, and comes back with it.
        machine, planned = slots[0].machine, run.placement
        for pid in processes_on(host, machine, "org.apache.spark.deploy.worker.Worker"):
            os.kill(pid, signal.SIGKILL)
        until(run, lambda: run.arrangement.requested != planned, "the loss is noticed")
        assert {slot.machine for slot in run.arrangement.requested.slots} == {slots[2].machine}
        assert run.placement is planned, "what is planned is not overwritten by what can be had now"
        flowing(run)
        until(run, lambda: run.arrangement.requested == planned, "the machine is back")
        observed = run.placements.observed
        until(run, lambda: (seen := observed("count")) is not None and seen.agrees("count", planned), "it is used")
        kinds = [event.kind for event in run.events.since(0)]
        assert "fault" in kinds
        assert "recovery" in kinds

        flowing(run)
        drain_and_check(run, tmp_path)


def kill_worker(host: SparkHost, machine: str, begun: Callable[[], bool]) -> threading.Thread:
    """Once this has begun, and as soon as the machine has a worker, it dies."""

    def kill_it() -> None:
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            if begun() and (found := processes_on(host, machine, "org.apache.spark.deploy.worker.Worker")):
                os.kill(found[0], signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_it)
    killer.start()
    return killer


@pytest.mark.live
@pytest.mark.timeout(600)
def test_a_machine_that_dies_while_it_is_added(
    standalone_host, running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host: SparkHost = standalone_host
    names = host.cluster.names
    with running(steered(tmp_path, RATE), host, settings=SETTINGS) as run:
        changes = run.changes
        flowing(run)
        planned = run.placement

        # It comes back by itself in time, from before it was there or from under the work that it was given: what was
        # asked for is done.
        for begun in (lambda: True, lambda: changes.step.startswith("place")):
            [new] = host.provider.upcoming(1)
            killer = kill_worker(host, new.name, begun)
            tag = SetInstances("tag", {new.slots[0]: 2})
            done(changes.carry_out(Plan((*plans.add_machines([new]).actions, tag))))
            killer.join()
            assert dict(run.placement.of("tag")) == {new.slots[0]: 2}
            until(run, lambda: run.arrangement.requested == run.placement, "everything is placed as planned")
            flowing(run)
            assert any("had ended" in event.reason for event in run.events.since(0)), "its end is told"
            done(changes.carry_out(Plan((*diff(run.placement, planned), RemoveMachine(new.name)))))

        # It does not come back: rolled back, and nothing of it is left.
        monkeypatch.setattr(standalone, "MOST_RESTARTS", 0)
        [new] = host.provider.upcoming(1)
        killer = kill_worker(host, new.name, lambda: True)
        outcome = changes.carry_out(Plan((*plans.add_machines([new]).actions, SetInstances("tag", {new.slots[0]: 2}))))
        killer.join()
        assert outcome.status is Status.ROLLED_BACK
        assert "has ended" in outcome.reason
        assert run.placement == planned
        assert host.cluster.names == names
        assert processes_on(host, new.name, "org.apache.spark") == []
        flowing(run)
        drain_and_check(run, tmp_path)
