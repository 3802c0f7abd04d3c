"""What strategies remember of their decisions on request: `gain` takes back what it added, and knows its rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.autoscaler.proposals import Proposal
from penstock.cluster.model import Placement
from penstock.plans.plan import apply
from penstock.strategies.memory import EMPTY, Memory


class Memories:
    """One thread writes, any thread may read."""

    def __init__(self) -> None:
        #: Strategy -> what it remembers, and the instances by operator that its last decision on request left.
        self._kept: dict[str, tuple[Memory, Mapping[str, int]]] = {}

    def carried_out(self, proposal: Proposal, *, on_request: bool) -> None:
        """A decision was carried out. A controller keeps account of what it added itself (`steps.py`), so of its
        decisions only the rates are remembered here."""
        if proposal.memory is None or proposal.before is None:
            return
        memory, left = self._kept.get(proposal.strategy, (EMPTY, {}))
        if on_request:
            memory, left = proposal.memory, _totals(apply(proposal.before, proposal.plan.actions))
        self._kept[proposal.strategy] = memory.knowing(proposal.memory.rates), left

    def of(self, strategy: str, now: Placement) -> Memory:
        """What a strategy remembers. If anybody has changed instances since its last decision on request, nothing is
        known any more of what it added."""
        memory, left = self._kept.get(strategy, (EMPTY, {}))
        return memory if left == _totals(now) else replace(memory, added=())


def _totals(placement: Placement) -> dict[str, int]:
    return {name: placement.total(name) for name in placement.instances}
