"""From a proposal to its end: Penstock checks a proposal, queues it as an operation, carries its plan out, begins again
after a fault, and tells every part of that as an event."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from penstock.autoscaler.effect import Effects, EndedOperation
from penstock.autoscaler.memories import Memories
from penstock.autoscaler.neighbours import ALONE, Change, Neighbours
from penstock.autoscaler.operations import SOMEBODY, Operation, Operations, Propose
from penstock.autoscaler.policy import Fate
from penstock.autoscaler.requested_records import RequestedRecords
from penstock.autoscaler.shapes import machine_as_json, outcome_as_json, placement_as_json, proposal_as_json
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.plans.enacting import Outcome, Status
from penstock.plans.plan import Plan
from penstock.running import RunningTopology

#: How many seconds the end of a topology waits for a plan that a program carries out itself.
CLOSING = 5.0
POLL = 0.05
#: Errors after which an operation does not begin again.
_NOT_AGAIN = ("CANCELLED", "LEASE_LOST")
Json = dict[str, Any]


class Execution:
    """The operations of one running topology. Any thread may ask for one; they are carried out one after the other."""

    def __init__(
        self, run: RunningTopology, records: RequestedRecords | None = None, neighbours: Neighbours = ALONE
    ) -> None:
        """`records` are those of decisions that a person asked for; None keeps none. An operation is carried out while
        this topology has the lease among its `neighbours`."""
        self._run = run
        self._neighbours = neighbours
        self._records = records
        self._changes = run.changes
        self._effects = Effects(run)
        self.memories = Memories()
        self.operations = Operations(
            self.carry_out, self._changes.cancel, lambda: self._changes.step, self._ended, lease=self._lease
        )

    def close(self) -> None:
        """Roll back the operation that is under way, and accept no other: before the run is stopped. A plan that a
        program carries out itself is rolled back too, if that takes no longer than CLOSING seconds."""
        self.operations.close()
        deadline = time.monotonic() + CLOSING
        while self._changes.step and time.monotonic() < deadline:
            self._changes.cancel()  # again and again: a plan that is only being checked may begin later
            time.sleep(POLL)
        self._effects.close()
        if self._records is not None:
            self._records.close()

    def submit(self, action: str, arguments: Mapping[str, Any], propose: Propose, who: str = SOMEBODY) -> Json:
        """Queue an operation; `who` asked for it. What cannot be done is refused with a named error."""
        event = self._run.happened(EventKind.REQUEST, f"{who} asked for this", action, fields=arguments)
        try:
            if self.operations.first is None:
                # No operation is in the way: a plan that cannot run is refused here and now, not later in the queue.
                proposal = propose()
                if who == SOMEBODY:  # what a policy proposes was checked on the view that it decided on
                    self._changes.leads_to(proposal.plan)
            return self.operations.submit(action, arguments, propose, str(event.id), who).as_json()
        except PenstockError as refusal:
            self._refused(refusal, action, str(event.id))
            raise

    def dry_run(self, action: str, arguments: Mapping[str, Any], propose: Propose) -> Json:
        """The proposal and where its plan leads. Nothing changes."""
        proposal = propose()
        target = self._changes.leads_to(proposal.plan)
        return {
            "action": action,
            "arguments": dict(arguments),
            "dry_run": True,
            **proposal_as_json(proposal),
            "leads_to": placement_as_json(target.placement)
            | {"machines": [machine_as_json(machine) for machine in target.cluster.machines]},
        }

    def carry_out(self, operation: Operation) -> Outcome:
        """Carry out the plan of an operation whose turn has come."""
        run, proposal, cause = self._run, operation.proposal, operation.cause
        assert proposal is not None
        if proposal.strategy:
            fields = {"decision": dict(proposal.decision), "note": proposal.note}
            run.happened(EventKind.DECISION, proposal.plan.reason, operation.action, cause, fields)
        if not proposal.plan:
            return Outcome(proposal.plan, Status.NOTHING, proposal.plan.reason)
        if self._records is not None and proposal.strategy and operation.who == SOMEBODY:
            self._records.begin(operation.id, proposal)
        outcome = self._attempted(operation, proposal.plan)
        if outcome.status is Status.DONE:
            self.memories.carried_out(proposal, on_request=operation.who == SOMEBODY)
        what = "; ".join(str(action) for action in outcome.plan.actions)
        text = f"{outcome.status} after {outcome.seconds:.1f} s: {what}"
        if outcome.status is Status.ROLLED_BACK:
            text = f"{text}; because {outcome.reason}"
        run.happened(EventKind.ACTION, text, operation.action, cause, outcome_as_json(outcome))
        return outcome

    def _attempted(self, operation: Operation, plan: Plan) -> Outcome:
        """A fault in the middle of an operation aborts it, and the operation begins again (Stela, section III-B). It
        keeps its plan, because the plan was decided on what was measured before the fault. If the plan cannot run any
        more, the operation ends as rolled back."""
        if operation.cancelled:
            return Outcome(plan, Status.ROLLED_BACK, "CANCELLED: the operation had not begun", error="CANCELLED")
        outcome = self._while_leased(operation, plan)
        for _ in range(1, self._run.settings.scaling_attempts):
            if outcome.status is not Status.ROLLED_BACK or outcome.error in _NOT_AGAIN or operation.cancelled:
                break
            text = f"the operation was rolled back and begins again: {outcome.reason}"
            self._run.happened(EventKind.FAULT, text, operation.action, operation.cause, outcome_as_json(outcome))
            try:
                outcome = self._while_leased(operation, plan)
            except PenstockError as refusal:
                return replace(outcome, reason=f"{outcome.reason}; and the operation cannot begin again: {refusal}")
        return outcome

    def _while_leased(self, operation: Operation, plan: Plan) -> Outcome:
        """A plan whose lease is lost in the middle is rolled back, as one that is cancelled; its outcome says why. Some
        steps cannot be stopped early; then an event says that the plan went on after the lease was lost."""
        if (lost := self._neighbours.lost) is not None:
            return Outcome(plan, Status.ROLLED_BACK, f"{lost.name}: {lost.message}", error=lost.name)
        outcome = self._changes.carry_out(plan)
        if (lost := self._neighbours.lost) is None:
            return outcome
        if outcome.status is Status.ROLLED_BACK:
            return replace(outcome, reason=f"{lost.name}: {lost.message}; {outcome.reason}", error=lost.name)
        text = f"{lost.name}: {lost.message} The operation could not be stopped any more."
        self._run.happened(EventKind.FAULT, text, operation.action, operation.cause, {"error": lost.name})
        return outcome

    def _lease(self, operation: Operation) -> AbstractContextManager[None]:
        """The lease of the cluster for an operation. An operation that waits for it says so, in an event too."""

        def waits(why: str) -> None:
            if why != operation.waits:
                operation.waits = why
                self._run.happened(EventKind.NOTICE, why, operation.action, operation.cause)

        return self._neighbours.lease(
            Change(waits, lambda seconds: self.operations.wait(operation, seconds), self._changes.cancel)
        )

    def _ended(self, operation: Operation) -> None:
        if operation.state is Fate.DONE and operation.began_at is not None:
            self._effects.ended(
                EndedOperation(operation.id, operation.action, operation.cause, operation.began_at, operation.ended_at)
            )
        if self._records is not None:
            self._records.ended(operation.id, operation.state, operation.reason)
        if operation.error is not None:
            self._refused(operation.error, operation.action, operation.cause)

    def _refused(self, refusal: PenstockError, action: str, cause: str) -> None:
        self._run.happened(EventKind.VETO, str(refusal), action, cause, {"error": refusal.name})
