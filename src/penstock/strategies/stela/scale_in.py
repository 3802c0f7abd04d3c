"""Stela's scale-in removes the machine whose instances matter least to the throughput (section II-F, algorithm 3)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.decision import Decision, DecisionStep, DoesNotFit, NothingToDo, StrategyAnswer
from penstock.strategies.draft import Draft
from penstock.strategies.load import Load
from penstock.strategies.rules import PAPER, Rules
from penstock.strategies.stela.congestion import congested
from penstock.strategies.stela.etp import etp
from penstock.strategies.stela.scale_out import NAME


def etp_of(load: Load, rules: Rules = PAPER) -> dict[str, float]:
    values = etp(load, congested(load, rules))
    return {operator.name: value for operator, value in zip(load.operators, values, strict=True)}


def etp_sum(machine: Machine, instances: Mapping[str, Mapping[Slot, int]], shares: Mapping[str, float]) -> float:
    """ETPSum(machine_k) = sum over its instances tau_i of FindETP(FindComp(tau_i))."""
    own = set(machine.slots)
    return sum(
        shares.get(operator, 0.0) * count
        for operator, slots in instances.items()
        for slot, count in slots.items()
        if slot in own
    )


def scale_in(load: Load, placement: Placement, cluster: Cluster, machines: int, rules: Rules = PAPER) -> StrategyAnswer:
    """Remove machines one at a time: ETPSum is computed again after the instances of the last one were dealt out."""
    if machines <= 0:
        return NothingToDo(NAME, "the request removes no machine")
    draft = Draft(load, placement, rules)
    if machines >= len(cluster.machines):
        return DoesNotFit(NAME, "the last machine cannot be removed: the topology needs it", sum(draft.on.values()))
    shares = etp_of(load, rules)
    left = list(cluster.machines)
    steps: list[DecisionStep] = []
    removed: list[str] = []
    for _ in range(machines):
        sums = {machine.name: etp_sum(machine, draft.instances, shares) for machine in left}
        # Of machines that matter equally little, the one with the fewest instances to move.
        goes = min(left, key=lambda machine: (sums[machine.name], sum(draft.on[slot] for slot in machine.slots)))
        left.remove(goes)
        missing = _deal_out(draft, goes, sorted(left, key=lambda machine: sums[machine.name]), sums, steps)
        if missing:
            return DoesNotFit(NAME, f"the other machines have no room for what runs on {goes.name}", missing)
        removed.append(goes.name)
    reason = f"{', '.join(removed)} had the lowest ETPSum when the strategy removed it"
    gone = {slot for machine in cluster.machines if machine.name in removed for slot in machine.slots}
    return Decision(NAME, draft.placement(gone), tuple(steps), reason, removed=tuple(removed), projected=load)


def _deal_out(
    draft: Draft, goes: Machine, others: list[Machine], sums: Mapping[str, float], steps: list[DecisionStep]
) -> int:
    """Deal the instances of a machine to the others, round robin in increasing ETPSum; returns how many found no
    place."""
    own = set(goes.slots)
    leaving = [
        (operator, slot)
        for operator, slots in draft.instances.items()
        for slot, count in sorted(slots.items())
        if slot in own
        for _ in range(count)
    ]
    turn = 0
    for number, (operator, slot) in enumerate(leaving):
        for skipped in range(len(others)):
            machine = others[(turn + skipped) % len(others)]
            to = draft.emptiest(machine)
            if to is not None:
                break
        else:
            return len(leaving) - number
        turn += skipped + 1
        draft.move(operator, slot, to)
        reason = (
            f"{goes.name} is removed, because its ETPSum of {sums[goes.name]:.3f} is the lowest; {machine.name} "
            f"({sums[machine.name]:.3f}) is next in increasing order"
        )
        steps.append(
            DecisionStep(operator, to, reason, slot, (("etp_sum", sums[goes.name]), ("to_sum", sums[machine.name])))
        )
    return 0
