"""Decisions of policies for operations: each is made on one snapshot, and exactly what was decided is carried out."""

from __future__ import annotations

from collections.abc import Callable

from penstock.autoscaler.goals import Grow, Shrink
from penstock.autoscaler.policy import View, decide, policy
from penstock.autoscaler.proposals import Answer, Proposal
from penstock.cluster.model import Placement
from penstock.errors import PenstockError
from penstock.plans.plan import Plan

#: Called when an operation is checked, and again when its turn comes.
Propose = Callable[[], Proposal]


class Decisions:
    """The decisions about one running topology."""

    def __init__(self, view: Callable[[Grow | Shrink], View], planned: Callable[[], Placement]) -> None:
        self._view = view
        self._planned = planned

    def on_request(self, name: str, request: Grow | Shrink) -> Propose:
        """A function that has the policy of this name answer a request for machines. Called again, it returns the same
        answer as long as the placement is the same; after a change, the policy decides anew."""
        decider = policy(name)
        decided: list[Proposal] = []

        def propose() -> Proposal:
            if not decided or not self._is_current(decided[0]):
                view = self._view(request)
                decided[:] = [_told(name, decide(name, decider, view), view)]
            return decided[0]

        return propose

    def made(self, proposal: Proposal) -> Propose:
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
        return proposal.before is None or proposal.before == self._planned()


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
