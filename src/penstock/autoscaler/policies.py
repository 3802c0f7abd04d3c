"""Penstock's own policies. Each takes the request of a person, or asks the goal whether more or less is wanted; one of
the strategies says what is to run where on machines that come or go (`goal_plans`)."""

from __future__ import annotations

from functools import partial

from penstock.autoscaler.answers import answer_of, last_machine
from penstock.autoscaler.goal_plans import towards_the_goal
from penstock.autoscaler.goals import Shrink
from penstock.autoscaler.measured_load import bare_load, youth
from penstock.autoscaler.policy import Coming, View
from penstock.autoscaler.proposals import Answer, Nothing
from penstock.autoscaler.strategies import STRATEGIES, Gain
from penstock.strategies.decision import StrategyAnswer
from penstock.strategies.load import Load
from penstock.strategies.rules import Rules


class MachinePolicy:
    """Adds or removes machines that a person asked for, or changes machines and instances towards the goal. The
    strategy decides which instances run where."""

    def __init__(self, strategy: str) -> None:
        self._strategy = STRATEGIES[strategy]

    def decide(self, view: View) -> Answer:
        if view.request is None:
            return towards_the_goal(view, self._strategy)
        rules = Rules.of(view.settings)
        load = view.load if self._strategy.needs_rates else bare_load(view.snapshot)
        note = youth(view.snapshot) if self._strategy.needs_rates else ""
        if isinstance(load, Nothing):
            return load
        cluster = view.snapshot.cluster
        if isinstance(view.request, Shrink):
            if view.request.machines >= len(cluster.machines):
                return last_machine(view.request.machines, cluster.names)
            found = self._scaled_in(load, view, view.request.machines, rules)
        else:
            coming = view.coming(view.request.machines)
            if isinstance(coming, Nothing):
                return coming
            cluster = coming.cluster
            found = self._scaled_out(load, view, coming, rules)
        return answer_of(found, view, view.request.reason, len(cluster.machines), note=note)

    def _scaled_in(self, load: Load, view: View, machines: int, rules: Rules) -> StrategyAnswer:
        placement, cluster = view.snapshot.placement, view.snapshot.cluster
        if isinstance(self._strategy, Gain):
            return self._strategy.scale_in(load, placement, cluster, machines, rules, view.memory)
        return self._strategy.scale_in(load, placement, cluster, machines, rules)

    def _scaled_out(self, load: Load, view: View, coming: Coming, rules: Rules) -> StrategyAnswer:
        placement = view.snapshot.placement
        if isinstance(self._strategy, Gain):
            return self._strategy.scale_out(load, placement, coming.cluster, coming.machines, rules, view.memory)
        return self._strategy.scale_out(load, placement, coming.cluster, coming.machines, rules)


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
