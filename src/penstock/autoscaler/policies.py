"""Penstock's own policies. Each takes the request of a person, or asks the goal whether machines are to be added or
removed, and then asks one of the strategies of Stela's papers what is to run where."""

from __future__ import annotations

from functools import partial

from penstock.autoscaler.goals import Grow, Shrink, Stay, Wish, rules_for, wish
from penstock.autoscaler.measured_load import bare_load, youth
from penstock.autoscaler.policy import View
from penstock.autoscaler.proposals import Answer, Nothing, Prediction, Proposal
from penstock.plans.plan import AddMachine, Plan, RemoveMachine, diff
from penstock.strategies.decision import Decision, DoesNotFit, StrategyAnswer, answer_as_json
from penstock.strategies.registry import STRATEGIES
from penstock.strategies.rules import Rules


class MachinePolicy:
    """Adds or removes machines: those that a person asked for, or one at a time towards the goal. The strategy decides
    which instances run where."""

    def __init__(self, strategy: str) -> None:
        self._strategy = STRATEGIES[strategy]

    def decide(self, view: View) -> Answer:
        wanted, rules = _wanted(view)
        if isinstance(wanted, Nothing):
            return wanted
        if self._strategy.needs_rates:
            load, note = view.load, youth(view.snapshot)
        else:
            load, note = bare_load(view.snapshot), ""
        if isinstance(load, Nothing):
            return load
        placement, cluster = view.snapshot.placement, view.snapshot.cluster
        if isinstance(wanted, Shrink):
            if wanted.machines >= len(cluster.machines):
                return _last_machine(wanted.machines, cluster.names)
            answer = self._strategy.scale_in(load, placement, cluster, wanted.machines, rules)
        else:
            coming = view.coming(wanted.machines)
            if isinstance(coming, Nothing):
                return coming
            cluster = coming.cluster
            answer = self._strategy.scale_out(load, placement, cluster, coming.machines, rules)
        return _answer(answer, view, wanted, note, len(cluster.machines))


def _wanted(view: View) -> tuple[Grow | Shrink | Nothing, Rules]:
    rules = Rules.of(view.settings)
    if view.request is not None:
        return view.request, rules
    if view.goal is None:
        return Nothing("the topology has no goal, and nobody has asked for machines"), rules
    if isinstance(view.load, Nothing):
        return view.load, rules
    rules = rules_for(view.goal, rules)
    found: Wish = wish(view.goal, view.snapshot, view.load, rules)
    return Nothing(found.reason) if isinstance(found, Stay) else found, rules


def _answer(answer: StrategyAnswer, view: View, wanted: Grow | Shrink, note: str, machines: int) -> Answer:
    """The policy's answer from that of the strategy; `machines` is how many there are without those that are added."""
    because = f"{answer.strategy}: {answer.reason}"
    if isinstance(answer, DoesNotFit):
        hint = "Ask for more machines, or raise the setting slot_instances."
        return Nothing(f"{because} ({answer.missing} too many).", "SLOT_FULL", hint, note)
    if not isinstance(answer, Decision):
        return Nothing(because, note=note)
    actions = (
        *(AddMachine(machine) for machine in answer.added),
        *diff(view.snapshot.placement, answer.placement),
        *(RemoveMachine(name) for name in answer.removed),
    )
    predictions = [Prediction("machines", float(machines + len(answer.added) - len(answer.removed)))]
    if answer.projected is not None:
        predictions.append(Prediction("throughput", answer.projected.throughput))
    return Proposal(
        Plan(actions, because),
        tuple(reason for reason in (wanted.reason, because) if reason),
        tuple(predictions),
        decision=answer_as_json(answer),
        note=note,
    )


def _last_machine(machines: int, names: tuple[str, ...]) -> Nothing:
    reason = f"{machines} of the machines ({', '.join(names)}) cannot be removed: no machine would be left."
    return Nothing(reason, "LAST_MACHINE", "Ask to remove fewer machines.")


gain = partial(MachinePolicy, "gain")
stela = partial(MachinePolicy, "stela")
stela_capacity = partial(MachinePolicy, "stela_capacity")
storm = partial(MachinePolicy, "storm")
nearest_to_source = partial(MachinePolicy, "nearest_to_source")
nearest_to_sink = partial(MachinePolicy, "nearest_to_sink")
most_descendants = partial(MachinePolicy, "most_descendants")
centrality = partial(MachinePolicy, "centrality")
least_link_load = partial(MachinePolicy, "least_link_load")
most_link_load = partial(MachinePolicy, "most_link_load")
