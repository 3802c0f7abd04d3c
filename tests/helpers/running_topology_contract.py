"""What every `RunningTopology` does: the same tests for the engine on Spark, the recording double, and those to come.

A class of tests inherits from `RunningTopologyContract` and has a method `flow`. Its module has a fixture `running`, of
module scope, with the topology that `declared` gives. The test that ends the topology comes last.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from penstock import Topology, sinks, sources
from penstock.clock import run_time
from penstock.cluster.model import Slot
from penstock.errors import PenstockError
from penstock.monitor.history import HistoryQuery
from penstock.monitor.report import BatchReport
from penstock.plans import requests as plans
from penstock.plans.enacting import Status
from penstock.plans.plan import Plan, RemoveMachine
from penstock.running import RunningTopology
from penstock.topology.definition import Keyed, TopologyDefinition

OPERATORS = ("numbers", "tag", "count", "out")
SECONDS = 60.0


def declared() -> TopologyDefinition:
    """numbers -> tag -> count (keyed, 4 tasks) -> out: for a cluster of one machine with two slots. Its functions are
    local, so that an executor need not find this module."""

    def same(batch):
        return batch

    def count(frame):
        return frame.groupBy("id").count()

    topology = Topology("contract")
    numbers = topology.source("numbers", sources.rate(200, sources.numbers()))
    tagged = topology.map("tag", same, inputs=numbers, schema="id long, value double")
    counted = topology.keyed(
        "count", count, inputs=tagged, key="id", schema="id long, count long", tasks=4, instances=2
    )
    topology.sink("out", sinks.noop(), inputs=counted)
    return topology.definition()


def until(running: RunningTopology, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        running.check()
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def refused(running: RunningTopology, plan: Plan) -> str:
    """The name of the error with which the plan is refused, before and while it would be carried out."""
    before = running.placements.planned, running.cluster
    names = []
    for attempt in (running.changes.leads_to, running.changes.carry_out):
        with pytest.raises(PenstockError) as caught:
            attempt(plan)
        names.append(caught.value.name)
    assert (running.placements.planned, running.cluster) == before, "nothing has changed"
    assert names[0] == names[1]
    return names[0]


class RunningTopologyContract:
    def flow(self, running: RunningTopology) -> None:
        """Return when a batch of every operator has been published since the call."""
        raise NotImplementedError

    # What runs, and where

    def test_it_says_what_runs(self, running: RunningTopology) -> None:
        assert running.definition.name == "contract"
        assert [one.name for one in running.definition.operators] == list(OPERATORS)
        assert 0 < running.started_at <= run_time()
        assert running.settings.slot_instances > 0
        assert running.state.path.is_absolute()

    def test_it_has_machines(self, running: RunningTopology) -> None:
        assert len(running.cluster.slots) == 2
        assert running.usable_slots == frozenset(running.cluster.slots)
        assert running.unplaced_because == ""

    def test_machines_that_cannot_come_are_refused(self, running: RunningTopology) -> None:
        with pytest.raises(PenstockError) as caught:
            running.upcoming(1)
        assert caught.value.name == "FIXED_MACHINES"

    def test_a_snapshot_says_what_machines_could_come(self, running: RunningTopology) -> None:
        coming = running.snapshot().coming
        assert coming.machines == ()
        assert coming.refusal.name == "FIXED_MACHINES"

    def test_planned_requested_and_observed_agree_when_nothing_is_lost(self, running: RunningTopology) -> None:
        self.flow(running)
        placements = running.placements
        assert set(placements.planned.instances) == set(OPERATORS)
        assert len(placements.planned.tasks["count"]) == 4
        assert placements.requested == placements.planned
        for operator in OPERATORS:
            observed = placements.observed(operator)
            assert observed is not None
            assert observed.agrees(operator, placements.requested)
            places = placements.places(operator)
            assert {one.slot for one in places.bundles} == {slot.name for slot in placements.planned.of(operator)}
            assert places.differences() == []

    # What is measured

    def test_batches_are_counted_and_heard_of(self, running: RunningTopology) -> None:
        heard: list[BatchReport] = []
        running.listen(heard.append)
        before = running.statistics.totals("out")[0]
        self.flow(running)
        until(running, lambda: {one.operator for one in heard} == set(OPERATORS), "every operator is heard of")
        until(running, lambda: running.statistics.totals("out")[0] > before, "rows reach the sink")
        assert all(one.started <= one.finished for one in heard)
        rates = running.statistics.rates("out")
        assert rates.rows_in > 0
        # Read one after the other, while batches go on.
        assert 0 < rates.batches <= running.statistics.batches("out") <= running.statistics.whole_run("out").batches

    def test_a_snapshot_is_of_this_topology_as_it_is_placed(self, running: RunningTopology) -> None:
        snapshot = running.snapshot()
        assert snapshot.definition == running.definition
        assert snapshot.cluster == running.cluster
        assert snapshot.placement == running.placements.requested
        assert set(snapshot.operators) == set(OPERATORS)

    def test_levels_can_be_asked_for(self, running: RunningTopology) -> None:
        for operator in OPERATORS:
            assert running.backlog(operator) >= 0
            assert running.throttled(operator) in (True, False)
            assert not any(one.open for one in running.kept(operator))
        assert running.left_inside() == {}, "this count is told with every batch"

    def test_a_history_is_a_list_or_is_not_written(self, running: RunningTopology) -> None:
        found = running.history(HistoryQuery(("rows",), running.started_at, run_time() + 1))
        assert found is None or isinstance(found, list)

    def test_events_are_kept_in_order(self, running: RunningTopology) -> None:
        assert "started" in [event.kind for event in running.events.since(0)]
        first = running.happened("notice", "a test looks", "contract", cause="a test", fields={"n": 1})
        second = running.happened("notice", "and again", cause=str(first.id))
        assert running.events.since(first.id - 1)[:2] == [first, second]
        assert (first.subject, first.cause, first.fields["n"]) == ("contract", "a test", 1)
        with pytest.raises(ValueError, match="rumour"):
            running.happened("rumour", "there is no such kind")

    # Changes

    def test_a_plan_is_carried_out_once(self, running: RunningTopology) -> None:
        slot = running.cluster.slots[1]
        before = running.placements.planned
        plan = plans.set_instances(before, "tag", {slot: 2})
        target = running.changes.leads_to(plan)
        assert running.placements.planned == before, "to ask changes nothing"
        outcome = running.changes.carry_out(plan)
        assert (outcome.status, outcome.error) == (Status.DONE, "")
        assert outcome.steps
        assert running.placements.planned == target.placement
        assert dict(running.placements.requested.of("tag")) == {slot: 2}
        assert running.changes.carry_out(plan).status is Status.NOTHING
        assert running.changes.step == ""
        assert not running.changes.cancel(), "nothing is under way"

    def test_a_task_is_moved(self, running: RunningTopology) -> None:
        origin = running.placements.planned.tasks["count"][0]
        other = next(slot for slot in running.cluster.slots if slot != origin)
        assert running.changes.cheapest_tasks("count", other, origin, 0) == []
        [task] = running.changes.cheapest_tasks("count", origin, other, 1)
        assert running.placements.planned.tasks["count"][task] == origin
        outcome = running.changes.carry_out(plans.move_tasks("count", {task: other}))
        assert [(move.task, move.origin, move.slot) for move in outcome.placed.moves] == [(task, origin, other)]
        assert running.placements.planned.tasks["count"][task] == other

    def test_a_migration_is_listed_once(self, running: RunningTopology) -> None:
        self.flow(running)
        log = running.changes.migrations
        before = log.since()
        origin = running.placements.planned.tasks["count"][1]
        other = next(slot for slot in running.cluster.slots if slot != origin)
        plan = plans.move_tasks("count", {1: other})
        outcome = running.changes.carry_out(plan)
        [moved] = outcome.placed.migrations
        assert (moved.operator, moved.tasks, moved.tasks_of_operator) == ("count", (1,), 4)
        assert 0 <= moved.moved_bytes <= moved.state_bytes
        assert running.started_at <= moved.asked_at <= run_time()
        assert running.changes.carry_out(plan).placed.migrations == (), "nothing is moved a second time"
        [listed] = log.since(before[-1].id if before else 0)
        assert listed.migrations == (moved,)

    def test_state_is_cut_into_another_number_of_tasks(self, running: RunningTopology) -> None:
        assert running.changes.leads_to(plans.set_tasks("count", 6)).placement.total("count") == 2
        for _ in range(2):  # the second batch begins when the first is committed: state that was never is not cut
            self.flow(running)
        outcome = running.changes.carry_out(plans.set_tasks("count", 6))
        assert outcome.status is Status.DONE
        operator = running.definition.operator("count")
        assert isinstance(operator, Keyed)
        assert operator.tasks == len(running.placements.planned.tasks["count"]) == 6
        assert running.changes.carry_out(plans.set_tasks("count", 6)).status is Status.NOTHING

    def test_what_cannot_be_is_refused_and_changes_nothing(self, running: RunningTopology) -> None:
        nowhere, [here, *_] = Slot("nowhere", 0), running.cluster.slots
        planned, machine = running.placements.planned, running.cluster.names[0]
        assert refused(running, plans.set_instances(planned, "tag", {nowhere: 1})) == "BAD_PLACEMENT"
        assert refused(running, plans.set_instances(planned, "tag", {here: 10_000})) == "SLOT_FULL"
        assert refused(running, plans.move_tasks("count", {99: here})) == "NO_SUCH_TASK"
        assert refused(running, plans.set_tasks("tag", 8)) == "REPARTITION_FAILED"
        assert refused(running, Plan((RemoveMachine("nowhere"),))) == "NO_SUCH_MACHINE"
        assert refused(running, Plan((RemoveMachine(machine),))) == "LAST_MACHINE"

    # Its life

    def test_sources_are_paused_and_go_on(self, running: RunningTopology) -> None:
        assert not running.paused
        assert running.pause()
        assert running.paused
        assert not running.pause(), "it is paused already"
        assert running.resume()
        assert not running.resume()
        assert not running.paused
        self.flow(running)

    def test_what_a_controller_writes_is_kept(self, running: RunningTopology) -> None:
        running.kept_book.write("{}")
        assert running.kept_book.read() == "{}"

    def test_a_wait_ends_with_its_time(self, running: RunningTopology) -> None:
        assert not running.wait(0.05)
        assert not running.finished
        assert running.how_it_ended == ""

    def test_everything_that_was_emitted_arrives_before_the_end(self, running: RunningTopology) -> None:
        """The last one: it ends the topology."""
        assert not running.drained
        running.begin_drain()
        until(running, lambda: running.drained, "what is on its way arrives")
        heard: list[str] = []
        running.events.listen(lambda event: heard.append(event.kind))
        assert running.stop()
        assert running.stop(drain=False), "it stays as it was stopped"
        assert heard == ["stopped"], "once"
        assert "everything had reached the sinks" in running.how_it_ended
