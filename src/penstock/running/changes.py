"""What can be changed about a running topology, as a plan."""

from __future__ import annotations

from typing import Protocol

from penstock.cluster.model import Slot
from penstock.plans.enacting import Outcome
from penstock.plans.migration_log import MigrationLog
from penstock.plans.plan import Plan, Target


class Changes(Protocol):
    """Carries out plans on a running topology, one at a time. Any thread may call it."""

    @property
    def step(self) -> str:
        """The step of the plan that is being carried out now; empty if no plan is."""

    @property
    def migrations(self) -> MigrationLog:
        """The changes that moved state lately, with what each migration cost."""

    def leads_to(self, plan: Plan) -> Target:
        """Where the plan leads from here. A plan that could not run is refused with a named error. Nothing changes."""

    def carry_out(self, plan: Plan) -> Outcome:
        """Change the topology as the plan says, and return when it was seen to run that way, or was rolled back. A plan
        that could not run is refused with a named error, and BUSY refuses a second plan; nothing has changed then."""

    def cancel(self) -> bool:
        """Have the plan that is being carried out rolled back; False if there is none."""

    def cheapest_tasks(self, operator: str, origin: Slot, slot: Slot, count: int) -> list[int]:
        """The tasks of a keyed operator on the slot `origin` that cost the least to move to `slot`; at most `count`."""
