"""Two topologies without Spark share a cluster over one SQLite file: one changes at a time, in order, whoever dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from monitor_fakes import CLUSTER, DEFINITION, PLACEMENT

from penstock.api.steering import Steering
from penstock.autoscaler.neighbours import ALONE, cores_of_all, cores_used
from penstock.autoscaler.operations import Operation
from penstock.autoscaler.policy import Fate
from penstock.autoscaler.proposals import Proposal
from penstock.autoscaler.shared_cluster import SharedCluster
from penstock.channels.leases import Leases, Neighbour
from penstock.errors import PenstockError
from penstock.monitor.snapshot import SlotSnapshot
from penstock.plans import requests as plans
from penstock.testing import RecordingTopology

WAIT = 30.0
#: Seconds that a lease lasts. On a busy computer no thread of a live topology must be late for a whole one.
LONG, SOME, SHORT = 60.0, 5.0, 1.0
GONE = PenstockError("NEIGHBOURS_UNREACHABLE", "it is away.", "Wait.")


class Failing(Leases):
    """Leases whose database is away for the calls that are named."""

    away: frozenset[str] = frozenset()
    #: How often the row was renewed together with what the topology uses.
    renewed = 0

    def _reach(self, call: str) -> None:
        if call in self.away:
            raise GONE

    def tell(self, uses: object) -> None:
        self._reach("tell")
        self.renewed += 1
        super().tell(uses)  # type: ignore[arg-type]

    def ask(self) -> int | None:
        self._reach("ask")
        return super().ask()

    def confirm(self, ticket: int) -> None:
        self._reach("confirm")
        super().confirm(ticket)

    def leave(self) -> None:
        self._reach("leave")
        super().leave()


@dataclass
class Shared:
    """A topology that shares its cluster."""

    run: RecordingTopology
    leases: Failing
    cluster: SharedCluster
    steering: Steering

    def ask(self, count: int) -> Operation:
        return self.steering.operations.get(self.steering.set_instances("work", count)["id"])

    def ended(self, operation: Operation) -> Fate:
        assert self.steering.operations.wait(operation, WAIT)
        return operation.state

    def told(self) -> list[str]:
        return [f"{event.kind} {event.subject}: {event.reason}" for event in self.run.events.since(1)]


Make = Callable[..., Shared]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as end:

        def made(name: str, lasts: float = LONG) -> Shared:
            run = RecordingTopology(replace(DEFINITION, name=name), CLUSTER, placement=PLACEMENT)
            opened = Leases.open(url(tmp_path), "rack", name, lasts)
            leases = Failing(opened._database, "rack", name, lasts)
            end.callback(leases.close)
            cluster = end.enter_context(SharedCluster(run, leases))
            steering = Steering(run, "recorded", lambda drain: None, cluster)
            end.callback(steering.close)
            return Shared(run, leases, cluster, steering)

        yield made


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'neighbours.sqlite'}"


class Held:
    """The changes of a topology stop in the middle until they are let go on."""

    def __init__(self, shared: Shared) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        shared.run.engine.meanwhile = self._hold

    def _hold(self, _: str) -> None:
        self.begun.set()
        assert self.go_on.wait(WAIT)


def until(condition: Callable[[], bool]) -> None:
    """What is waited for happens in another process's place: by the clock of the database, or by looks at it."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_never_both_in_the_middle_of_a_change_and_neither_starves(make: Make) -> None:
    both = [make("one"), make("two")]
    inside: set[str] = set()
    order: list[str] = []
    waited = threading.Event()

    def note(name: str) -> Callable[[str], None]:
        def meanwhile(_: str) -> None:
            assert not inside, "the other one is in the middle of a change"
            inside.add(name)
            order.append(name)
            assert waited.wait(WAIT)
            inside.discard(name)

        return meanwhile

    for shared in both:
        shared.run.engine.meanwhile = note(shared.run.definition.name)
    one, two = both
    counts = range(4, 8)
    asked = [(one, one.ask(count)) for count in counts]
    until(lambda: bool(order))
    asked += [(two, two.ask(count)) for count in counts]
    until(lambda: bool(asked[-len(counts)][1].waits))
    waited.set()
    assert {shared.ended(operation) for shared, operation in asked} == {Fate.DONE}
    assert order == ["one", "two"] * len(counts), "who was there goes to the end of the line"
    assert [shared.run.placements.planned.total("work") for shared in both] == [7, 7]


def test_an_operation_that_waits_says_for_whom_and_can_be_dropped(make: Make) -> None:
    one, two = make("one"), make("two")
    held = Held(one)
    first = one.ask(4)
    assert held.begun.wait(WAIT)
    second = two.ask(4)
    until(lambda: bool(second.waits))
    assert second.state is Fate.WAITING
    shown = two.steering.status()["operation"]
    assert (shown["state"], shown["reason"]) == ("waiting", "waits for topology one, which is changing")
    assert shown["began_at"] is None
    assert "notice set-instances: waits for topology one, which is changing" in two.told()
    assert two.steering.cancel(second.id)["state"] == "cancelled"
    until(lambda: all(row.ticket is None for row in one.leases.neighbours()))
    held.go_on.set()
    assert one.ended(first) is Fate.DONE
    assert two.run.engine.calls == []
    assert two.ended(two.ask(5)) is Fate.DONE, "it is carried out as if nothing had been dropped"


def test_a_topology_that_ends_does_not_wait_for_its_turn(make: Make) -> None:
    one, two = make("one"), make("two")
    held = Held(one)
    first = one.ask(4)
    assert held.begun.wait(WAIT)
    second = two.ask(4)
    until(lambda: bool(second.waits))
    two.steering.close()
    assert second.state is Fate.CANCELLED
    held.go_on.set()
    assert one.ended(first) is Fate.DONE


def test_a_dead_one_does_not_block(make: Make, tmp_path: Path) -> None:
    dead, alive = Leases.open(url(tmp_path), "rack", "dead", SHORT), make("alive")
    assert dead.ask() is not None, "and nothing renews it any more"
    operation = alive.ask(4)
    assert alive.ended(operation) is Fate.DONE
    assert operation.waits == "waits for topology dead, which is changing"
    dead.close()


def test_a_long_change_keeps_its_lease(make: Make) -> None:
    one, two = make("one", SOME), make("two")
    held = Held(one)
    first = one.ask(4)
    assert held.begun.wait(WAIT)
    second = two.ask(4)
    threading.Event().wait(1.5 * SOME)
    assert second.state is Fate.WAITING
    held.go_on.set()
    assert one.ended(first) is Fate.DONE
    assert two.ended(second) is Fate.DONE


def test_a_lease_that_cannot_be_renewed_has_its_change_rolled_back(make: Make) -> None:
    one, two = make("one", SOME), make("two")
    stopped, cancel = threading.Event(), one.run.changes.cancel

    def noted() -> bool:
        found = cancel()
        stopped.set()
        return found

    def hold(call: str) -> None:
        one.leases.away = frozenset({"tell", "confirm"})  # as if its process had been stopped for a while
        assert call == "restore" or stopped.wait(WAIT)

    one.run.changes.cancel = noted  # type: ignore[method-assign]
    one.run.engine.meanwhile = hold
    before = one.run.placements.planned
    first = one.ask(4)
    assert one.ended(first) is Fate.ROLLED_BACK
    assert first.outcome is not None
    assert first.outcome.error == "LEASE_LOST"
    assert first.reason.startswith("LEASE_LOST: ")
    assert one.run.engine.calls == ["place", "restore"], "it does not begin again"
    assert one.run.placements.planned == before
    assert two.ended(two.ask(4)) is Fate.DONE
    one.leases.away = frozenset()
    one.run.engine.meanwhile = lambda call: None
    assert one.ended(one.ask(5)) is Fate.DONE, "the next operation asks for a lease of its own"


def test_a_lease_that_another_has_meanwhile_is_lost(make: Make) -> None:
    one = make("one")
    held = Held(one)
    first = one.ask(4)
    assert held.begun.wait(WAIT)
    assert one.cluster.lost is None
    one.leases.leave()  # the database has deleted the row of a driver that slept
    one.cluster.renew()
    assert one.cluster.lost is not None
    assert one.cluster.lost.name == "LEASE_LOST"
    until(one.run.changes._cancelled.is_set)
    held.go_on.set()
    assert one.ended(first) is Fate.ROLLED_BACK


def test_a_change_that_cannot_be_stopped_any_more_says_so(make: Make) -> None:
    one = make("one")
    one.run.changes.cancel = lambda: False  # type: ignore[method-assign]
    held = Held(one)
    first = one.ask(4)
    assert held.begun.wait(WAIT)
    one.leases.leave()
    one.cluster.renew()
    held.go_on.set()
    assert one.ended(first) is Fate.DONE
    assert any(line.startswith("fault set-instances: LEASE_LOST") for line in one.told())


def test_a_lease_that_could_not_be_given_back_is_given_back_later_and_not_renewed(make: Make) -> None:
    one, two = make("one"), make("two")
    one.leases.away = frozenset({"leave"})
    assert one.ended(one.ask(4)) is Fate.DONE, "what was done is done"
    until(lambda: one.cluster._owed)
    renewed = one.leases.renewed
    one.cluster.renew()
    assert one.leases.renewed == renewed, "its row is left to end"
    assert two.leases.ask() is None
    assert one.ended(one.ask(5)) is Fate.REFUSED, "an old ticket is no lease for the next operation"
    one.leases.away = frozenset()
    one.cluster.renew()
    assert one.leases.renewed > renewed
    assert two.leases.ask() is not None


def test_without_the_database_nothing_changes(make: Make) -> None:
    one = make("one")
    one.leases.away = frozenset({"tell", "ask"})
    operation = one.ask(4)
    assert one.ended(operation) is Fate.REFUSED
    assert operation.error is not None
    assert operation.error.name == "NEIGHBOURS_UNREACHABLE"
    assert one.run.engine.calls == []
    one.cluster.renew()
    one.cluster.renew()
    assert [line for line in one.told() if " neighbours: " in line] == [f"fault neighbours: {GONE}"], "it is told once"
    one.leases.away = frozenset()
    one.cluster.renew()
    assert one.told()[-1] == "recovery neighbours: the database of neighbours answers again"
    assert one.ended(one.ask(4)) is Fate.DONE


def test_a_decision_is_refused_if_the_placement_changed_while_it_waited(make: Make) -> None:
    one, two = make("one"), make("two")
    held = Held(one)
    first = one.ask(4)
    assert held.begun.wait(WAIT)
    planned = two.run.placements.planned
    plan = plans.so_many_instances(two.run.definition, planned, CLUSTER, "work", 5)
    asked = two.steering.desk.carry_out(Proposal(plan, strategy="stela", before=planned))  # type: ignore[arg-type]
    operation = two.steering.operations.get(asked["id"])
    until(lambda: bool(operation.waits))
    two.run.changes.carry_out(plans.set_instances(planned, "out", {CLUSTER.slots[0]: 1}))
    held.go_on.set()
    assert two.ended(operation) is Fate.REFUSED
    assert operation.error is not None
    assert operation.error.name == "PLACEMENT_CHANGED"
    assert one.ended(first) is Fate.DONE
    until(lambda: one.leases.ask() is not None)  # a refused operation gives its lease back too


def test_an_operation_behind_one_that_waits_is_not_checked_before_its_turn(make: Make) -> None:
    one, two = make("one"), make("two")
    held = Held(one)
    one.ask(4)
    assert held.begun.wait(WAIT)
    first = two.ask(4)
    until(lambda: bool(first.waits))
    second = two.ask(-1)
    assert second.state is Fate.WAITING, "what is in front of it may change what can be done"
    held.go_on.set()
    assert two.ended(first) is Fate.DONE
    assert two.ended(second) is Fate.REFUSED


def test_each_sees_what_the_others_use(make: Make) -> None:
    one, two = make("one"), make("two")
    assert one.steering.status()["neighbours"] == []
    one.cluster.renew()
    [seen] = one.steering.status()["neighbours"]
    # Nothing was measured: three slots of two cores each have instances, and the fourth too.
    assert (seen["topology"], seen["in_line"], seen["uses"]) == ("two", False, {"a": 4.0, "b": 4.0})
    assert one.steering.desk.view().neighbours == {"a": 4.0, "b": 4.0}
    held = Held(two)
    operation = two.ask(4)
    assert held.begun.wait(WAIT)
    one.cluster.renew()
    assert one.steering.status()["neighbours"][0]["in_line"]
    held.go_on.set()
    assert two.ended(operation) is Fate.DONE


def test_a_topology_that_is_alone_has_no_neighbours_and_does_not_wait() -> None:
    run = RecordingTopology(DEFINITION, CLUSTER, placement=PLACEMENT)
    steering = Steering(run, "recorded", lambda drain: None)
    try:
        assert steering.status()["neighbours"] is None
        assert steering.desk.view().neighbours == {}
        operation = steering.operations.get(steering.set_instances("work", 4)["id"])
        assert steering.operations.wait(operation, WAIT)
        assert (operation.state, ALONE.lost) == (Fate.DONE, None)
    finally:
        steering.close()


def test_cores_are_those_of_the_cpu_time_or_all_of_a_slot_that_is_not_measured() -> None:
    snapshot = RecordingTopology(DEFINITION, CLUSTER, placement=PLACEMENT).snapshot()
    measured = {"a/0": 0.25, "a/1": 0.0, "b/0": None}
    slots = {name: SlotSnapshot(name, name[0], 2, 1, cpu_utilisation=share) for name, share in measured.items()}
    assert cores_used(replace(snapshot, slots=slots)) == {"a": 0.5, "b": 4.0}
    neighbours = [Neighbour("x", "1", None, {"a": 0.5, "b": 1.0}), Neighbour("y", "2", 7, {"b": 0.5})]
    assert cores_of_all(neighbours) == {"a": 0.5, "b": 1.5}
