"""The desk of a running topology: whatever is to change goes over it, whoever asks. The desk takes the view that a
policy decides on, all of it from one snapshot, and exactly what was decided is carried out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.autoscaler.execution import Execution
from penstock.autoscaler.goals import Grow, Shrink
from penstock.autoscaler.neighbours import ALONE, Neighbours, cores_of_all
from penstock.autoscaler.operations import SOMEBODY, Operations, Propose
from penstock.autoscaler.policy import View, decide, policy, view_of
from penstock.autoscaler.proposals import Answer, Proposal, action_of, machines_fewer, machines_more
from penstock.autoscaler.requested_records import RequestedRecords
from penstock.cluster.model import Placement
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Snapshot
from penstock.plans.plan import Plan
from penstock.plans.repair import repair
from penstock.running import RunningTopology

Json = dict[str, Any]


class Desk:
    """Any thread may call it."""

    def __init__(self, run: RunningTopology, neighbours: Neighbours = ALONE) -> None:
        self._run = run
        self._neighbours = neighbours
        self.execution = Execution(run, RequestedRecords(run, self.view), neighbours)

    @property
    def operations(self) -> Operations:
        return self.execution.operations

    def close(self) -> None:
        """Roll back the operation that is under way, and accept no other: before the run is stopped."""
        self.execution.close()

    # What is decided on

    def view(self, request: Grow | Shrink | None = None) -> View:
        """The view that a policy decides on."""
        view = view_of(self.planned(), self._run.settings, request=request)
        return replace(view, neighbours=cores_of_all(self._neighbours.seen or ()))

    def planned(self) -> Snapshot:
        """The snapshot with the planned placement. A slot that is lost for a moment does not change the plan, so a
        policy must not decide as if the slot were gone for good."""
        return replace(self._run.snapshot(), placement=self._planned_placement())

    def _planned_placement(self) -> Placement:
        return repair(self._run.placements.planned, self._run.cluster.slots)

    # What was decided

    def on_request(self, name: str, request: Grow | Shrink) -> Propose:
        """A function that has the policy of this name answer a request for machines. Called again, it returns the same
        answer as long as the placement is the same; after a change, the policy decides anew."""
        decider = policy(name)
        decided: list[Proposal] = []

        def propose() -> Proposal:
            if not decided or not self._is_current(decided[0]):
                view = self.view(request)
                view = replace(view, memory=self.execution.memories.of(name, view.snapshot.placement))
                decided[:] = [_told(name, decide(name, decider, view), view)]
            return decided[0]

        return propose

    def carry_out(self, proposal: Proposal) -> Json:
        """Carry out the plan that a policy has decided on, and no other plan. The operation is refused if the placement
        has changed between the decision and the operation's turn."""
        count = machines_more(proposal.plan) + machines_fewer(proposal.plan)
        arguments: Json = {"machines": count} if count else {}
        arguments |= {"strategy": proposal.strategy}
        who = f"the policy {proposal.strategy}" if proposal.strategy else SOMEBODY
        return self.execution.submit(action_of(proposal.plan), arguments, self._made(proposal), who)

    def _made(self, proposal: Proposal) -> Propose:
        """A function that returns this proposal, and refuses it if the placement has changed since the decision."""

        def propose() -> Proposal:
            if not self._is_current(proposal):
                raise PenstockError(
                    "PLACEMENT_CHANGED",
                    f"the placement has changed since {proposal.strategy} decided.",
                    "Nothing was changed. The next decision is made on the placement as it is then.",
                )
            return proposal

        return propose

    def _is_current(self, proposal: Proposal) -> bool:
        return proposal.before is None or proposal.before == self._planned_placement()


def _told(name: str, answer: Answer, view: View) -> Proposal:
    """The answer for a person who asked: a refusal is raised as an error; `Nothing` becomes a plan without actions."""
    if isinstance(answer, Proposal):
        return answer
    if answer.error:
        raise answer.as_error()
    decision = {"outcome": "nothing_to_do", "strategy": name, "reason": answer.reason}
    plan = Plan((), answer.reason)
    before = view.snapshot.placement
    return Proposal(plan, (answer.reason,), strategy=name, decision=decision, note=answer.note, before=before)
