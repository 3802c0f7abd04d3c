"""Operations: one after the other, visible from request to end, cancelled where that is safe."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest
from fake_steering import PROPOSAL

from penstock.autoscaler.operations import KEPT, MOST_WAITING, Operation, Operations
from penstock.autoscaler.policy import Fate
from penstock.autoscaler.proposals import Proposal
from penstock.errors import Location, PenstockError
from penstock.plans.enacting import Outcome, Status

WAIT = 10.0


class Work:
    """Carries operations out when it is let; a cancelled one is rolled back."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.cancelled = threading.Event()
        self.began: list[int] = []
        self.at_once = 0
        self.ended: list[Fate] = []

    def carry_out(self, operation: Operation) -> Outcome:
        self.began.append(operation.id)
        assert not self.at_once, "two at once"
        self.at_once += 1
        while not self.free.wait(0.01) and not self.cancelled.is_set():
            pass
        self.at_once -= 1
        status = Status.ROLLED_BACK if self.cancelled.is_set() else Status.DONE
        return Outcome(PROPOSAL.plan, status, "as told")

    def cancel(self) -> bool:
        self.cancelled.set()
        return True


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def operations(work: Work) -> Iterator[Operations]:
    made = Operations(work.carry_out, work.cancel, lambda: "placing", lambda one: work.ended.append(one.state))
    yield made
    work.free.set()
    made.close()


def proposal() -> Proposal:
    return PROPOSAL


def submit(operations: Operations) -> Operation:
    return operations.submit("scale-out", {"machines": 1}, proposal)


def test_one_after_the_other_in_the_order_of_requests(operations: Operations, work: Work) -> None:
    all_of_them = [submit(operations) for _ in range(5)]
    work.free.set()
    assert all(operations.wait(one, WAIT) for one in all_of_them)
    assert work.began == [one.id for one in all_of_them] == [1, 2, 3, 4, 5]
    assert {one.state for one in all_of_them} == {Fate.DONE}
    assert work.ended == [Fate.DONE] * 5


def test_the_one_under_way_is_visible_with_its_step(operations: Operations, work: Work) -> None:
    first, second = submit(operations), submit(operations)
    while operations.current is not first:
        pass
    assert first.as_json("placing")["step"] == "placing"
    assert second.as_json("placing") | {"asked_at": 0} == {
        "id": 2,
        "action": "scale-out",
        "arguments": {"machines": 1},
        "state": "waiting",
        "step": "",
        "reason": "",
        "asked_at": 0,
        "began_at": None,
        "ended_at": None,
        "proposal": None,
        "outcome": None,
        "error": None,
    }
    assert not operations.wait(second, 0.0)


def test_one_that_waits_is_dropped(operations: Operations, work: Work) -> None:
    first, second = submit(operations), submit(operations)
    while operations.current is not first:
        pass
    assert operations.cancel(second.id).state is Fate.CANCELLED
    work.free.set()
    assert operations.wait(first, WAIT)
    assert work.began == [first.id]


def test_one_under_way_is_rolled_back(operations: Operations, work: Work) -> None:
    first = submit(operations)
    while operations.current is not first:
        pass
    operations.cancel(first.id)
    assert operations.wait(first, WAIT)
    assert first.state is Fate.ROLLED_BACK


def test_one_that_is_over_cannot_be_cancelled(operations: Operations, work: Work) -> None:
    work.free.set()
    first = submit(operations)
    assert operations.wait(first, WAIT)
    with pytest.raises(PenstockError) as error:
        operations.cancel(first.id)
    assert error.value.name == "NOT_CANCELLABLE"


def test_what_is_refused_says_why_and_the_next_is_carried_out(
    operations: Operations, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> Proposal:
        raise PenstockError("LAST_MACHINE", "it cannot be removed.", "Add one first.")

    def broken() -> Proposal:
        raise ZeroDivisionError("a bug")

    work.free.set()
    first = operations.submit("scale-in", {}, refused)
    second = operations.submit("scale-in", {}, broken)
    third = submit(operations)
    assert operations.wait(third, WAIT)
    assert (first.state, second.state, third.state) == (Fate.REFUSED, Fate.REFUSED, Fate.DONE)
    assert first.as_json()["error"]["error"] == "LAST_MACHINE"
    assert second.as_json()["reason"] == "INTERNAL: ZeroDivisionError: a bug."
    [record] = caplog.records
    assert record.getMessage() == f"operation {second.id}, scale-in, failed"
    assert record.exc_info is not None, "the log has the traceback"


def test_what_is_refused_keeps_its_error_and_not_the_frames_of_it(operations: Operations, work: Work) -> None:
    class View:
        """Something large."""

    views: list[weakref.ref[View]] = []

    def not_found() -> None:
        view = View()
        views.append(weakref.ref(view))
        raise KeyError("machine")

    def refused() -> Proposal:
        view = View()
        views.append(weakref.ref(view))
        try:
            not_found()
        except KeyError as problem:
            where = Location("flow.py", 7)
            raise PenstockError("LAST_MACHINE", "it cannot be removed.", "Add one first.", where) from problem
        return PROPOSAL

    operation = operations.submit("scale-in", {}, refused)
    assert operations.wait(operation, WAIT)
    operations.close()  # the thread of the operation has ended
    gc.collect()
    assert [view() for view in views] == [None, None]
    assert operation.error is not None
    assert operation.error.as_json() == {
        "error": "LAST_MACHINE",
        "message": "it cannot be removed.",
        "hint": "Add one first.",
        "where": {"file": "flow.py", "line": 7},
    }


def test_nothing_to_do_is_a_state(operations: Operations, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        operations, "_carry_out", lambda one: Outcome(PROPOSAL.plan, Status.NOTHING, "it is so already")
    )
    first = submit(operations)
    assert operations.wait(first, WAIT)
    assert (first.state, first.as_json()["reason"]) == (Fate.NOTHING, "it is so already")


def test_too_many_are_refused(operations: Operations, work: Work) -> None:
    first = submit(operations)
    while operations.current is not first:
        pass
    for _ in range(MOST_WAITING):
        submit(operations)
    with pytest.raises(PenstockError) as error:
        submit(operations)
    assert error.value.name == "BUSY"


def test_closing_drops_what_waits_and_rolls_back_what_is_under_way(operations: Operations, work: Work) -> None:
    first, second = submit(operations), submit(operations)
    while operations.current is not first:
        pass
    operations.close()
    assert (first.state, second.state) == (Fate.ROLLED_BACK, Fate.CANCELLED)
    with pytest.raises(PenstockError) as error:
        submit(operations)
    assert error.value.name == "STOPPING"
    operations.close()


def test_an_operation_that_never_was(operations: Operations) -> None:
    with pytest.raises(PenstockError) as error:
        operations.get(7)
    assert (error.value.name, error.value.hint) == ("NO_SUCH_OPERATION", "Nothing was asked for yet.")
    operation = submit(operations)
    with pytest.raises(PenstockError) as error:
        operations.get(7)
    assert error.value.hint == f"The newest is {operation.id}."


def test_operations_that_are_over_are_remembered_for_a_while_and_let_go_of_what_they_were_made_with(
    operations: Operations, work: Work
) -> None:
    class View:
        """Something large."""

    work.free.set()
    view = View()
    gone = weakref.ref(view)
    last = operations.submit("scale-out", {}, partial(lambda _: PROPOSAL, view))
    del view
    assert operations.wait(last, WAIT)
    gc.collect()
    assert gone() is None
    for _ in range(2 * KEPT):
        last = submit(operations)
        assert operations.wait(last, WAIT)
    assert [one.id for one in operations.all()] == list(range(last.id - KEPT + 1, last.id + 1))


def test_operations_are_numbered_from_above_those_of_an_earlier_driver_on(operations: Operations) -> None:
    operations.continue_after(7)
    operations.continue_after(3)
    with pytest.raises(PenstockError, match="Nothing was asked for yet"):
        operations.get(7)
    assert [submit(operations).id, submit(operations).id] == [8, 9]
    operations.continue_after(5)
    assert submit(operations).id == 10
