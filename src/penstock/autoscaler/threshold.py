"""The policy `threshold`: the elasticity manager of Elastic Stateful Storm (section IV), which changes how many
instances operators have, and no machines.

In every round the rule (`strategies/thresholds.py`) says how many instances each operator is to have, and the mapping
that the setting `mapping` names says on which slots. If the rule changes nothing, the mapping is asked all the same: a
scheduler such as `traffic_aware` may then find a better placement for what is there, as the paper's does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.autoscaler.answers import expected_of
from penstock.autoscaler.guards import Budget, Freeze, Guard, not_while_paused, one_at_a_time
from penstock.autoscaler.instance_use import uses_of
from penstock.autoscaler.lessons import Failures, Harmful, at_their_limit
from penstock.autoscaler.policy import View
from penstock.autoscaler.proposals import Answer, Nothing, Prediction, Proposal
from penstock.cluster.model import Placement
from penstock.freeze import freeze_windows
from penstock.monitor.snapshot import Snapshot
from penstock.plans.plan import Plan, diff
from penstock.settings import Settings
from penstock.strategies.mapping import NoRoom, Wanted, place
from penstock.strategies.mapping.chains import as_one
from penstock.strategies.thresholds import InstanceUse, Thresholds, wanted_instances
from penstock.topology.definition import ByKey, Keyed, Map


@dataclass(frozen=True)
class CooldownRounds:
    """EM_cld: in so many rounds after the last change has ended, nothing changes."""

    rounds: int
    #: Seconds from one round to the next.
    period: float

    def __call__(self, proposal: Proposal, view: View) -> str:
        if view.last_ended is None or proposal.undo:
            return ""
        # A round that comes a little early is the same round.
        gone = int((view.now - view.last_ended) / self.period + 1e-6)
        left = self.rounds - gone
        return f"the last change ended {gone} rounds ago; {left} more are waited for" if left > 0 else ""


class Threshold:
    """Implements `Autonomous`."""

    def period(self, settings: Settings) -> float:
        """T_nbs."""
        return settings.threshold_period

    def guards(self, settings: Settings) -> list[Guard]:
        """Patience, and what waits for the effect of the last change, would be other rules than the paper's: it acts in
        the first round in which a threshold is crossed, also where that brings no throughput. Its cooldown is in
        rounds. What keeps a user's word and what a mistake has taught stays."""
        pause = settings.threshold_cooldown * settings.threshold_period
        return [
            not_while_paused,
            one_at_a_time,
            Freeze(freeze_windows(settings.freeze)),
            CooldownRounds(settings.threshold_cooldown, settings.threshold_period),
            Budget(settings.changes_per_hour),
            Failures(max(pause, settings.threshold_period)),
            Harmful(),
        ]

    def decide(self, view: View) -> Answer:
        if view.request is not None:
            hint = "Choose another strategy, for instance: --strategy stela"
            reason = "the strategy threshold changes instances, and no machines."
            return Nothing(reason, "STRATEGY_WITHOUT_MACHINES", hint)
        young = [gap for gap in view.snapshot.gaps if gap.grave and gap.subject == "window"]
        if young:
            return Nothing(f"too little was measured since the last change: {young[0].reason}")
        found = [_judged(view, chain) for chain in _units(view.snapshot)]
        wanted = {name: one.wanted for one in found for name in one.chain}
        changed = [one for one in found if one.wanted != one.now]
        placement = _placed(view, wanted)
        if isinstance(placement, NoRoom):
            hint = "Add machines, or raise the setting slot_instances."
            return Nothing(f"{view.settings.mapping}: {placement.reason}.", "SLOT_FULL", hint)
        if changed:
            return _rescaled(view, changed, placement)
        return _rearranged(view, placement, _why_nothing(view, found))


@dataclass(frozen=True)
class _Judged:
    """An operator, or a chain, and what the rule wants of it."""

    chain: tuple[str, ...]
    uses: tuple[InstanceUse, ...]
    now: int
    wanted: int

    @property
    def shares(self) -> list[float]:
        return [use.share for use in self.uses if use.share is not None]

    def __str__(self) -> str:
        name = " and ".join(self.chain)
        high = f"{max(self.shares):.0%}" if self.shares else "an unknown share"
        return f"{name} from {self.now} to {self.wanted} instances (the busiest uses {high} of its CPU time)"


def _units(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Chains, and operators that are in none, in topological order."""
    found = dict.fromkeys(snapshot.chain_of(one.name) for one in snapshot.definition.operators)
    return list(found)


def _judged(view: View, chain: tuple[str, ...]) -> _Judged:
    snapshot, settings = view.snapshot, view.settings
    uses = uses_of(snapshot, chain)
    least = max(settings.threshold_minimum, *(snapshot.definition.operator(name).min_instances for name in chain))
    bounds = [bound for name in chain if (bound := _most(snapshot, name)) is not None]
    wanted = wanted_instances(uses, Thresholds.of(settings), least, min(bounds, default=None))
    return _Judged(chain, uses, snapshot.placement.total(chain[0]), wanted)


def _most(snapshot: Snapshot, name: str) -> int | None:
    """How many instances can share the rows of an operator: no more than it has tasks, or groups of keys."""
    operator = snapshot.definition.operator(name)
    if isinstance(operator, Keyed):
        return len(snapshot.placement.tasks.get(name, ())) or operator.tasks
    by_key = any(isinstance(stream.grouping, ByKey) for stream in snapshot.definition.inputs_of(name))
    return operator.tasks if isinstance(operator, Map) and by_key else None


def _placed(view: View, instances: Mapping[str, int]) -> Placement | NoRoom:
    """Where the mapping puts so many instances. Operators that run as one chain stay one."""
    snapshot, settings = view.snapshot, view.settings
    wanted = replace(
        Wanted.as_now(snapshot.definition, snapshot.cluster, snapshot.placement),
        instances=instances,
        slot_instances=settings.slot_instances,
        chains=settings.chaining == "on",
        snapshot=snapshot,
        traffic_gain=settings.traffic_gain,
    )
    answer = place(settings.mapping, wanted)
    if isinstance(answer, NoRoom):
        return answer
    placement = as_one(answer, snapshot.chains)
    # A mapping that places operators one by one does not know that those of a chain go to the same slots.
    over = sum(max(count - settings.slot_instances, 0) for count in placement.load().values())
    return NoRoom("the operators of a chain do not fit on the same slots", over) if over else placement


def _rescaled(view: View, changed: Sequence[_Judged], placement: Placement) -> Proposal:
    out = [one for one in changed if one.wanted > one.now]
    into = [one for one in changed if one.wanted < one.now]
    settings = view.settings
    parts = [f"above {settings.threshold_out:g}: {'; '.join(map(str, out))}"] if out else []
    parts += [f"all below {settings.threshold_in:g}: {'; '.join(map(str, into))}"] if into else []
    reason = "; ".join(parts)
    decision = {
        "outcome": "decision",
        "reason": reason,
        "added_instances": {name: one.wanted - one.now for one in changed for name in one.chain},
        "utilisation": {one.chain[0]: [use.share for use in one.uses] for one in changed},
    }
    plan = Plan(diff(view.snapshot.placement, placement), reason)
    predictions = _predictions(view, placement) or _by_the_rule(view, changed)
    return Proposal(plan, (reason,), predictions, decision=decision)


def _predictions(view: View, placement: Placement) -> tuple[Prediction, ...]:
    """What is to be expected of a placement, so that the decision can be judged; empty if that is not known."""
    expected = expected_of(view, placement)
    return expected.predictions(view.machines) if expected is not None else ()


def _by_the_rule(view: View, changed: Sequence[_Judged]) -> tuple[Prediction, ...]:
    """The rule itself assumes only that instances share the work."""
    return (
        Prediction("machines", float(view.machines)),
        *(
            Prediction("utilisation", share * one.now / one.wanted, name)
            for one in changed
            for name in one.chain
            if (share := view.snapshot.operators[name].utilisation) is not None
        ),
    )


def _rearranged(view: View, placement: Placement, why: str) -> Answer:
    """Nothing is scaled; the mapping may still want to move something."""
    actions = diff(view.snapshot.placement, placement)
    if not actions:
        return Nothing(why)
    reason = f"the mapping {view.settings.mapping} finds a better placement for the instances that are there"
    decision = {"outcome": "decision", "reason": reason, "added_instances": {}}
    predictions = _predictions(view, placement) or (Prediction("machines", float(view.machines)),)
    return Proposal(Plan(actions, reason), (why, reason), predictions, decision=decision)


def _why_nothing(view: View, found: Sequence[_Judged]) -> str:
    full = [one.chain[0] for one in found if any(share > view.settings.threshold_out for share in one.shares)]
    unknown = [one.chain[0] for one in found if len(one.shares) < len(one.uses)]
    if full:
        limit = at_their_limit(view, full) or f"{', '.join(full)} cannot use more instances"
        return f"more instances are wanted and cannot be had: {limit}"
    if unknown:
        return f"no threshold is crossed; the utilisation of {', '.join(unknown)} is not known"
    return "no threshold is crossed"
