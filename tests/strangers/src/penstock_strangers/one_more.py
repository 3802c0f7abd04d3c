"""A policy: the operator with the longest backlog gets one instance more, where it is already; machines stay as they
are. It asks once, and waits for what comes of it."""

from __future__ import annotations

from penstock import plans
from penstock.extending import Answer, Map, Nothing, Prediction, Proposal, View


class OneMore:
    def decide(self, view: View) -> Answer:
        if view.history and not view.history[-1].fate.over:
            return Nothing("the last decision is still being carried out")
        snapshot = view.snapshot
        maps = [operator.name for operator in snapshot.definition.operators if isinstance(operator, Map)]
        if not maps:
            return Nothing("there is no map that could have one more")
        waiting = {name: snapshot.operators[name].backlog.rows or 0 for name in maps}
        name = max(maps, key=lambda one: waiting[one])
        slots = dict(snapshot.placement.of(name))
        slots[min(slots)] += 1
        return Proposal(
            plans.set_instances(snapshot.placement, name, slots),
            reasons=(f"{waiting[name]} rows wait in front of {name}, more than anywhere else",),
            predictions=(Prediction("backlog_rows", 0.0, name),),
        )
