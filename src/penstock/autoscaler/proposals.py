"""What a strategy proposes when somebody asks for more machines or fewer: a plan, and why it is that one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.autoscaler.measured_load import bare_load, measured_load, youth
from penstock.cluster.model import Machine
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Snapshot
from penstock.plans.plan import Action, AddMachine, Plan, RemoveMachine, diff
from penstock.strategies.scaling.decision import Decision, DoesNotFit, Outcome
from penstock.strategies.scaling.explain import outcome_as_json
from penstock.strategies.scaling.load import Load
from penstock.strategies.scaling.registry import Strategy, strategy
from penstock.strategies.scaling.rules import PAPER, Rules


@dataclass(frozen=True)
class Proposal:
    """A plan without actions means that there is nothing to do, for the plan's reason."""

    plan: Plan
    #: Which strategy decided, and its steps with their figures; empty where a person said what is to be done.
    strategy: str = ""
    decision: Mapping[str, Any] = field(default_factory=dict)
    #: What the person who asked should know about it.
    note: str = ""


def scale_out(
    snapshot: Snapshot, new_machines: Sequence[Machine], strategy_name: str, rules: Rules = PAPER
) -> Proposal:
    """New machines, and what is to run on them."""
    chosen = strategy(strategy_name)
    load, note = _load(chosen, snapshot)
    return _proposal(chosen.scale_out(load, snapshot.placement, snapshot.cluster, new_machines, rules), snapshot, note)


def scale_in(snapshot: Snapshot, machines: int, strategy_name: str, rules: Rules = PAPER) -> Proposal:
    """So many machines fewer: which of them, the strategy decides."""
    if machines >= len(snapshot.cluster.machines):
        known = ", ".join(snapshot.cluster.names)
        raise PenstockError(
            "LAST_MACHINE", f"{machines} of the machines ({known}) cannot go: none would be left.", "Ask for fewer."
        )
    chosen = strategy(strategy_name)
    load, note = _load(chosen, snapshot)
    return _proposal(chosen.scale_in(load, snapshot.placement, snapshot.cluster, machines, rules), snapshot, note)


def _load(chosen: Strategy, snapshot: Snapshot) -> tuple[Load, str]:
    if not chosen.needs_rates:
        return bare_load(snapshot), ""
    return measured_load(snapshot, on_demand=True), youth(snapshot)


def _proposal(outcome: Outcome, snapshot: Snapshot, note: str) -> Proposal:
    if isinstance(outcome, DoesNotFit):
        raise PenstockError(
            "SLOT_FULL",
            f"{outcome.strategy}: {outcome.reason} ({outcome.missing} too many).",
            "Ask for more machines, or raise the setting slot_instances.",
        )
    actions: tuple[Action, ...] = ()
    if isinstance(outcome, Decision):
        actions = (
            *(AddMachine(machine) for machine in outcome.added),
            *diff(snapshot.placement, outcome.placement),
            *(RemoveMachine(name) for name in outcome.removed),
        )
    plan = Plan(actions, f"{outcome.strategy}: {outcome.reason}")
    return Proposal(plan, outcome.strategy, outcome_as_json(outcome), note)
