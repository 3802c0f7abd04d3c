"""All scaling strategies by name: whoever scales picks one here, and an unknown name is a named error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from penstock.cluster.model import Cluster, Machine, Placement
from penstock.errors import PenstockError
from penstock.strategies.scaling import stela, stela_in, storm
from penstock.strategies.scaling.decision import Outcome
from penstock.strategies.scaling.load import Load
from penstock.strategies.scaling.migration import Migration
from penstock.strategies.scaling.priorities import PRIORITIES
from penstock.strategies.scaling.rules import PAPER, Rules


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
    ) -> Outcome: ...

    def scale_in(
        self, load: Load, placement: Placement, cluster: Cluster, machines: int, rules: Rules = PAPER
    ) -> Outcome: ...


class Stela:
    name = stela.NAME
    needs_rates = True
    scale_out = staticmethod(stela.scale_out)
    scale_in = staticmethod(stela_in.scale_in)


class StelaByCapacity:
    """The papers give only one scale-in."""

    name = stela.BY_CAPACITY
    needs_rates = True
    scale_out = staticmethod(stela.scale_out_by_capacity)

    @staticmethod
    def scale_in(load: Load, placement: Placement, cluster: Cluster, machines: int, rules: Rules = PAPER) -> Outcome:
        return replace(stela_in.scale_in(load, placement, cluster, machines, rules), strategy=stela.BY_CAPACITY)


class Storm:
    name = storm.NAME
    needs_rates = False
    scale_out = staticmethod(storm.scale_out)
    scale_in = staticmethod(storm.scale_in)


_ALL: tuple[Strategy, ...] = (Stela(), StelaByCapacity(), Storm(), *(Migration(name) for name in PRIORITIES))
STRATEGIES: Mapping[str, Strategy] = MappingProxyType({strategy.name: strategy for strategy in _ALL})


def strategy(name: str) -> Strategy:
    try:
        return STRATEGIES[name]
    except KeyError:
        known = ", ".join(STRATEGIES)
        raise PenstockError(
            "UNKNOWN_STRATEGY", f'there is no scaling strategy "{name}".', f"There are: {known}."
        ) from None
