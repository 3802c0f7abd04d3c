"""The strategies by name, those of Stela's papers and `gain`: each answers what is to run where if machines come or go.
As policies they are found by name in penstock.plugins (autoscaler/policies.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from penstock.cluster.model import Cluster, Machine, Placement
from penstock.strategies.baselines import storm
from penstock.strategies.baselines.migration import Migration
from penstock.strategies.baselines.priorities import PRIORITIES
from penstock.strategies.decision import StrategyAnswer
from penstock.strategies.gain import scale_in as gain_scale_in
from penstock.strategies.gain import scale_out as gain_scale_out
from penstock.strategies.gain.correction import correct
from penstock.strategies.gain.rates import learned
from penstock.strategies.load import Load
from penstock.strategies.rules import PAPER, Rules
from penstock.strategies.stela import scale_in, scale_out


class Strategy(Protocol):
    """`cluster` is what there is before; nothing is carried out."""

    @property
    def name(self) -> str: ...

    @property
    def needs_rates(self) -> bool:
        """Whether it looks at rates, and not only at where everything is."""

    def scale_out(
        self,
        load: Load,
        placement: Placement,
        cluster: Cluster,
        new_machines: Sequence[Machine],
        rules: Rules = PAPER,
    ) -> StrategyAnswer: ...

    def scale_in(
        self, load: Load, placement: Placement, cluster: Cluster, machines: int, rules: Rules = PAPER
    ) -> StrategyAnswer: ...


class Stela:
    name = scale_out.NAME
    needs_rates = True
    scale_out = staticmethod(scale_out.scale_out)
    scale_in = staticmethod(scale_in.scale_in)


class StelaByCapacity:
    """The papers give only one scale-in."""

    name = scale_out.BY_CAPACITY
    needs_rates = True
    scale_out = staticmethod(scale_out.scale_out_by_capacity)

    @staticmethod
    def scale_in(
        load: Load, placement: Placement, cluster: Cluster, machines: int, rules: Rules = PAPER
    ) -> StrategyAnswer:
        return replace(scale_in.scale_in(load, placement, cluster, machines, rules), strategy=scale_out.BY_CAPACITY)


class Gain:
    """Ours: the assignment that brings most (docs/design/0025). Its functions take a memory as well."""

    name = gain_scale_out.NAME
    needs_rates = True
    scale_out = staticmethod(gain_scale_out.scale_out)
    scale_in = staticmethod(gain_scale_in.scale_in)
    correct = staticmethod(correct)
    learned = staticmethod(learned)


class Storm:
    name = storm.NAME
    needs_rates = False
    scale_out = staticmethod(storm.scale_out)
    scale_in = staticmethod(storm.scale_in)


_ALL: tuple[Strategy, ...] = (Gain(), Stela(), StelaByCapacity(), Storm(), *(Migration(name) for name in PRIORITIES))
STRATEGIES: Mapping[str, Strategy] = MappingProxyType({strategy.name: strategy for strategy in _ALL})
