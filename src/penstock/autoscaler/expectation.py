"""What is to be expected of another placement: the rates of the fluid model (`strategies/fluid.py`), with what an
instance of every operator was measured to do. Every proposal of a controller carries these figures as predictions, and
they are compared with what is measured afterwards.

Operators that run as one chain share their instances, so a chain takes the time of all its operators for a row. The
tasks of a keyed operator are dealt to its instances, and the instance with the most of them sets the pace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.autoscaler.balance import balance_of
from penstock.autoscaler.proposals import Prediction
from penstock.cluster.model import Placement
from penstock.monitor.snapshot import Snapshot
from penstock.strategies.fluid import Pipes, flow
from penstock.strategies.load import Load, ratio
from penstock.strategies.mapping.chains import Chains, chains_of

#: An operator whose input is above this many times what its instances do holds the others back.
SATURATED = 1.02
#: Capacities that are further off than this are not believed to be.
LEAST_BETA, MOST_BETA = 0.3, 1.5


@dataclass(frozen=True)
class Expected:
    """The rates of a placement, by the fluid model."""

    #: Rows a second at the sinks, weighted.
    throughput: float
    #: By operator: the rows a second that it gets, and the share of its instances' time that it uses itself.
    arriving: Mapping[str, float]
    utilisation: Mapping[str, float]
    #: By operator: what it gets over what it can do at most. Operators of a chain share their time.
    fullness: Mapping[str, float]

    @property
    def saturated(self) -> tuple[str, ...]:
        """The operators that get more than they can do, in topological order."""
        return tuple(name for name, full in self.fullness.items() if full > SATURATED)

    def predictions(self, machines: int) -> tuple[Prediction, ...]:
        return (
            Prediction("machines", float(machines)),
            Prediction("throughput", self.throughput),
            *(Prediction("utilisation", share, name) for name, share in self.utilisation.items()),
        )


class Expectation:
    """What to expect of placements, by one snapshot and its load."""

    def __init__(self, snapshot: Snapshot, load: Load, chaining: bool = True) -> None:
        """`chaining` is whether operators may run as chains."""
        self._snapshot = snapshot
        self._load = load
        before = snapshot.placement
        self._chaining = chaining and bool(snapshot.chains or not chains_of(snapshot.definition, before))
        #: Rows a second of one instance while rows wait for it.
        self.rates: dict[str, float] = {}
        for one in load.operators:
            idle = (one.capacity or 0.0) / max(before.total(one.name), 1)
            self.rates[one.name] = max(one.processing / max(worth(before, one.name), 1e-9), idle)
        beta = self._off_by()
        self.rates = {name: rate * beta for name, rate in self.rates.items()}

    def _off_by(self) -> float:
        """By how much capacities are off, in common: where rows wait, what the sinks measure is what can be done."""
        balance = balance_of(self._snapshot)
        now = self.of(self._snapshot.placement).throughput
        if not balance.unmet or balance.throughput is None or now <= 0:
            return 1.0
        return min(max(balance.throughput / now, LEAST_BETA), MOST_BETA)

    def of(self, placement: Placement) -> Expected:
        chains = chains_of(self._snapshot.definition, placement) if self._chaining else ()
        paces = self._paces(chains)
        names = [one.name for one in self._load.operators]
        speeds = {name: paces[name] * worth(placement, name) for name in names}
        pipes = Pipes.of(self._load, [speeds[name] for name in names])
        found = flow(pipes, [1] * len(names))
        arriving = dict(zip(names, found.inputs, strict=True))
        executed = {one.name: one.processing for one in found.operators}
        busy = {name: placement.total(name) * self.rates[name] for name in names}
        return Expected(
            found.throughput,
            arriving,
            {name: min(ratio(executed[name], busy[name]), 1.0) for name in names},
            {name: ratio(arriving[name], speeds[name]) for name in names},
        )

    def _paces(self, chains: Chains) -> dict[str, float]:
        """Rows a second of one instance, where the instances of a chain share their time between its operators."""
        paces = dict(self.rates)
        for chain in chains:
            measured = [self._snapshot.operators[name].rate or 0.0 for name in chain]
            if measured[0] <= 0:
                continue
            rows = {name: rate / measured[0] for name, rate in zip(chain, measured, strict=True)}
            seconds = math.fsum(rows[name] / self.rates[name] for name in chain if self.rates[name] > 0)
            for name in chain:
                if seconds > 0 and rows[name] > 0:
                    paces[name] = min(rows[name] / seconds, self.rates[name])
        return paces


def worth(placement: Placement, operator: str) -> float:
    """How many instances with an equal share of the work are as fast as those of an operator."""
    count, tasks = placement.total(operator), len(placement.tasks.get(operator, ()))
    return tasks / math.ceil(tasks / count) if tasks and count else float(count)
