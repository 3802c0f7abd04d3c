"""What was asked of a topology and takes a while: one operation after the other, each visible from request to end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from penstock.autoscaler.policy import Fate
from penstock.autoscaler.proposals import Proposal
from penstock.autoscaler.shapes import outcome_as_json, proposal_as_json
from penstock.clock import Alarm, later, run_time, shown
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.plans.enacting import Outcome, Status

#: How many operations may wait behind the one that is carried out: more of them are the mistake of a program.
MOST_WAITING = 16
#: How many operations are remembered: each with its plan and what became of it. The event log has all of them.
KEPT = 50
#: A person, or a program of theirs.
SOMEBODY = "somebody"
#: Makes the proposal of an operation: called when the operation is checked, and again when its turn comes.
Propose = Callable[[], Proposal]

_FATE_OF = {Status.DONE: Fate.DONE, Status.NOTHING: Fate.NOTHING, Status.ROLLED_BACK: Fate.ROLLED_BACK}


@dataclass
class Operation:
    """One request and what became of it. Changed by its owner only, under the owner's lock."""

    id: int
    #: "scale-out", "set-instances", ...
    action: str
    arguments: Mapping[str, Any]
    propose: Propose = field(repr=False)
    asked_at: float
    #: The id of the event that tells of the request.
    cause: str = ""
    #: Who asked for it.
    who: str = SOMEBODY
    state: Fate = Fate.WAITING
    began_at: float | None = None
    ended_at: float | None = None
    proposal: Proposal | None = None
    outcome: Outcome | None = None
    error: PenstockError | None = None
    #: Whether the operation must not go on. Checked before each attempt, because between two attempts there is nothing
    #: to roll back.
    cancelled: bool = False
    #: Why the operation waits although its turn has come; empty if it does not.
    waits: str = ""

    def as_json(self, step: str = "") -> dict[str, Any]:
        return {
            "id": self.id,
            "action": self.action,
            "arguments": dict(self.arguments),
            "state": str(self.state),
            "step": step if self.state is Fate.RUNNING else "",
            "reason": self.reason,
            "asked_at": shown(self.asked_at),
            "began_at": None if self.began_at is None else shown(self.began_at),
            "ended_at": None if self.ended_at is None else shown(self.ended_at),
            "proposal": None if self.proposal is None else proposal_as_json(self.proposal),
            "outcome": None if self.outcome is None else outcome_as_json(self.outcome),
            "error": None if self.error is None else self.error.as_json(),
        }

    @property
    def reason(self) -> str:
        if self.error is not None:
            return f"{self.error.name}: {self.error.message}"
        if self.outcome is not None:
            return self.outcome.reason
        if self.state is Fate.WAITING:
            return self.waits
        return self.proposal.plan.reason if self.proposal is not None else ""


class Operations:
    """A queue of operations, and a thread that carries them out as long as there are any: no caller waits for another's
    operation."""

    def __init__(
        self,
        carry_out: Callable[[Operation], Outcome],
        cancel: Callable[[], bool],
        step: Callable[[], str],
        told: Callable[[Operation], object] = lambda _: None,
        clock: Callable[[], float] = run_time,
        lease: Callable[[Operation], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        self._carry_out = carry_out
        self._cancel = cancel
        self._step = step
        #: Is called with every operation that has ended.
        self._told = told
        self._clock = clock
        #: Is entered before an operation begins, and may have it wait there; is left after its end.
        self._lease = lease
        self._changed = threading.Condition()
        self._waiting: deque[Operation] = deque()
        self._known: dict[int, Operation] = {}
        #: The number of the newest operation.
        self._last = 0
        #: Whether new operations are refused.
        self.closing = False
        #: What carries operations out; None while none waits.
        self._worker: Alarm | None = None

    def submit(
        self,
        action: str,
        arguments: Mapping[str, Any],
        propose: Propose,
        cause: str = "",
        who: str = SOMEBODY,
    ) -> Operation:
        """Queue an operation. Its proposal is made when its turn comes, after all operations before it."""
        with self._changed:
            if self.closing:
                raise PenstockError("STOPPING", "the topology is being stopped.", "Start it again to change it.")
            if len(self._waiting) >= MOST_WAITING:
                raise PenstockError(
                    "BUSY", f"{len(self._waiting)} operations wait already.", "Ask again when they have ended."
                )
            number = self._last = self._last + 1
            operation = Operation(number, action, dict(arguments), propose, self._clock(), cause, who)
            self._known[number] = operation
            while len(self._known) > KEPT and self._known[min(self._known)].state.over:
                del self._known[min(self._known)]
            self._waiting.append(operation)
            self._changed.notify_all()
            if self._worker is None:
                self._worker = later(0.0, self._work, "penstock-operations")
        return operation

    def continue_after(self, number: int) -> None:
        """Have the next operation get a number above this one, which an operation of an earlier driver has."""
        with self._changed:
            self._last = max(self._last, number)

    def get(self, number: int) -> Operation:
        with self._changed:
            if number not in self._known:
                newest = max(self._known, default=None)
                hint = f"The newest is {newest}." if newest is not None else "Nothing was asked for yet."
                raise PenstockError("NO_SUCH_OPERATION", f"there is no operation {number}.", hint)
            return self._known[number]

    def all(self) -> list[Operation]:
        """The oldest first."""
        with self._changed:
            return list(self._known.values())

    @property
    def current(self) -> Operation | None:
        """The operation that is being carried out; None if there is none."""
        with self._changed:
            return next((one for one in self._known.values() if one.state is Fate.RUNNING), None)

    @property
    def first(self) -> Operation | None:
        """The operation that is being carried out, or else the next one; None if all are over."""
        with self._changed:
            return next((one for one in self._known.values() if not one.state.over), None)

    def step(self) -> str:
        """What is being done now for the operation that is carried out."""
        return self._step()

    def wait(self, operation: Operation, seconds: float | None = None) -> bool:
        """Wait for the end of an operation, up to `seconds`; whether it has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: operation.state.over, seconds)

    def cancel(self, number: int) -> Operation:
        """An operation that waits never begins. One that is carried out is rolled back, if its step can be ended
        early."""
        operation = self.get(number)
        with self._changed:
            if operation.state is Fate.WAITING:
                self._waiting.remove(operation)
                self._end(operation, Fate.CANCELLED)
                return operation
            if operation.state.over:
                raise PenstockError(
                    "NOT_CANCELLABLE",
                    f"operation {number} is over ({operation.state}).",
                    "Only operations that wait or are under way can be cancelled.",
                )
            operation.cancelled = True
        self._cancel()
        return operation

    def close(self) -> None:
        """Accept no other operation, drop those that wait, and wait until the one that is carried out is rolled
        back."""
        with self._changed:
            self.closing = True
            while self._waiting:
                self._end(self._waiting.popleft(), Fate.CANCELLED)
            for one in self._known.values():
                one.cancelled |= one.state is Fate.RUNNING
            self._changed.notify_all()
        while (worker := self._worker) is not None and worker.is_alive():
            if self.current is not None:
                self._cancel()  # again and again: an operation whose proposal is being made may begin later
            worker.join(0.1)

    def _work(self) -> None:
        while (operation := self._next()) is not None:
            with self._refusing(operation), self._lease(operation):
                if self._begun(operation):
                    # It ends before the lease does, so that no neighbour's operation begins before its end.
                    with self._refusing(operation):
                        operation.proposal = operation.propose()
                        operation.outcome = self._carry_out(operation)
                        self._ended(operation, _FATE_OF[operation.outcome.status])

    @contextmanager
    def _refusing(self, operation: Operation) -> Iterator[None]:
        """An operation that fails with an error ends as refused."""
        try:
            yield
        except PenstockError as problem:
            self._ended(operation, Fate.REFUSED, problem)
        except Exception as problem:  # a bug must not end the thread that everybody waits for
            LOGGER.exception("operation %d, %s, failed", operation.id, operation.action)
            self._ended(operation, Fate.REFUSED, _internal(problem))

    def _next(self) -> Operation | None:
        """The operation whose turn comes now. It waits until it has begun, so it can be dropped until then."""
        with self._changed:
            if not self._waiting:
                self._worker = None
                return None
            return self._waiting[0]

    def _begun(self, operation: Operation) -> bool:
        """Begin an operation, unless it was dropped while it waited."""
        with self._changed:
            if operation.state.over:
                return False
            self._waiting.remove(operation)
            operation.state, operation.began_at = Fate.RUNNING, self._clock()
            self._changed.notify_all()
            return True

    def _ended(self, operation: Operation, state: Fate, error: PenstockError | None = None) -> None:
        """End an operation, also one that could not begin, unless it was dropped before."""
        with self._changed:
            if operation.state.over:
                return
            if operation in self._waiting:
                self._waiting.remove(operation)
            # A copy has no traceback, whose frames would keep all that they know for as long as the operation is known.
            operation.error = copy(error)
            self._end(operation, state)
        self._told(operation)

    def _end(self, operation: Operation, state: Fate) -> None:
        operation.state, operation.ended_at = state, self._clock()
        operation.propose = _over  # what it was made with, a view of everything, need not stay as long as the operation
        self._changed.notify_all()


def _over() -> Proposal:
    raise RuntimeError("an operation that is over proposes nothing")


def _internal(problem: Exception) -> PenstockError:
    text = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
    return PenstockError("INTERNAL", f"{text}.", "This is a bug in Penstock; please report it.")
