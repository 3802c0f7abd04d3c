"""From a policy's answer to an operation: one decision is made on one snapshot, and what was decided is carried out."""

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
    """Those about one running topology."""

    def __init__(self, view: Callable[[Grow | Shrink], View], planned: Callable[[], Placement]) -> None:
        self._view = view
        self._planned = planned

    def on_request(self, name: str, request: Grow | Shrink) -> Propose:
        """What the policy of this name answers to somebody who asks for machines, and not for a plan: called again, the
        answer is the same as long as the placement is, and is decided anew where it is not."""
        decider = policy(name)
        decided: list[Proposal] = []

        def propose() -> Proposal:
            if not decided or not self._is_current(decided[0]):
                view = self._view(request)
                decided[:] = [_told(name, decide(name, decider, view), view)]
            return decided[0]

        return propose

    def made(self, proposal: Proposal) -> Propose:
        """What was decided already: this plan and no other. It is refused if the placement has changed since."""

        def propose() -> Proposal:
            if not self._is_current(proposal):
                raise PenstockError(
                    "PLACEMENT_CHANGED",
                    f"{proposal.strategy} decided on a placement that was changed since.",
                    "Nothing was changed. The next decision is made on what is there now.",
                )
            return proposal

        return propose

    def _is_current(self, proposal: Proposal) -> bool:
        return proposal.before is None or proposal.before == self._planned()


def _told(name: str, answer: Answer, view: View) -> Proposal:
    """For the person who asked: what cannot be done is an error, and nothing to do is a plan without actions."""
    if isinstance(answer, Proposal):
        return answer
    if answer.error:
        raise answer.as_error()
    decision = {"outcome": "nothing_to_do", "strategy": name, "reason": answer.reason}
    plan = Plan((), answer.reason)
    before = view.snapshot.placement
    return Proposal(plan, (answer.reason,), strategy=name, decision=decision, note=answer.note, before=before)
