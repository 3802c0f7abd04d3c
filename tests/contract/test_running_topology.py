"""The recording double is a `RunningTopology`; tests/spark/test_topology_on_spark.py holds the engine to the same."""

from __future__ import annotations

import threading

import pytest
from running_topology_contract import OPERATORS, RunningTopologyContract, declared

from penstock import plans
from penstock.cluster.model import Cluster
from penstock.errors import PenstockError
from penstock.running import RunningTopology
from penstock.testing import RecordingTopology
from penstock.topology.definition import Keyed


@pytest.fixture(scope="module")
def running() -> RunningTopology:
    return RecordingTopology(declared(), Cluster.of(["a"], slots=2))


class TestTheDouble(RunningTopologyContract):
    def flow(self, running: RunningTopology) -> None:
        assert isinstance(running, RecordingTopology)
        for operator in OPERATORS:
            running.publish(operator, rows=10)


# What only a double does: a test says what happens.


@pytest.fixture
def double() -> RecordingTopology:
    cluster = Cluster.of(["a", "b", "c"], slots=1)
    return RecordingTopology(declared(), cluster.minus(["c"]), upcoming=cluster.machines[2:])


def test_machines_come_as_they_were_announced(double: RecordingTopology) -> None:
    [machine] = double.upcoming(1)
    assert machine.name == "c"
    assert double.snapshot().coming.machines == (machine,)
    with pytest.raises(PenstockError, match="only 1"):
        double.upcoming(2)
    double.changes.carry_out(plans.add_machines([machine]))
    assert double.snapshot().coming.machines == ()


def test_what_is_measured_begins_anew_with_every_change(double: RecordingTopology) -> None:
    for operator in OPERATORS:
        double.publish(operator, rows=10)
    before = double.snapshot()
    assert before.since == double.started_at
    operator = next(one for one in double.definition.operators if isinstance(one, Keyed))
    double.changes.carry_out(plans.set_tasks(operator.name, operator.tasks * 2))
    cut = double.snapshot()
    assert cut.definition == double.definition != before.definition
    assert cut.since > before.since
    [slot, *_] = double.cluster.slots
    double.changes.carry_out(plans.set_instances(double.placements.planned, operator.name, {slot: 2}))
    assert double.snapshot().since > cut.since


def test_a_lost_slot_is_requested_no_longer(double: RecordingTopology) -> None:
    lost = double.cluster.slots[0]
    double.lost.add(lost)
    assert lost in double.placements.planned.slots
    assert lost not in double.placements.requested.slots


def test_it_ends_and_fails_when_it_is_told_to(double: RecordingTopology) -> None:
    threading.Timer(0.01, double.finish).start()
    assert double.wait(10)
    double.fail(PenstockError("OPERATOR_FAILED", "it broke.", "Mend it."))
    with pytest.raises(PenstockError, match="it broke"):
        double.wait(10)


def test_rows_that_wait_at_a_sudden_end_have_not_arrived(double: RecordingTopology) -> None:
    double.waiting_rows["out"] = 5
    assert double.backlog("out") == 5
    assert not double.stop(drain=False)
    assert not double.stop()
