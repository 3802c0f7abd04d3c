"""What a scaling strategy answers: a decision, or that there is nothing to do, or that it does not fit."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cluster.model import Machine, Placement, Slot
from penstock.strategies.scaling.load import Load


@dataclass(frozen=True)
class Step:
    """One instance: where it goes, and why. It is new if it comes from nowhere."""

    operator: str
    to: Slot
    reason: str
    origin: Slot | None = None
    #: The figures that decided it: the operator's rates, ratio and ETP, or the machines' ETPSum.
    figures: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        way = f"{self.origin} -> {self.to}" if self.origin else f"new on {self.to}"
        return f"{self.operator}: {way}: {self.reason}"


@dataclass(frozen=True)
class Decision:
    """The placement to go to, with the machines that come or go, step by step."""

    strategy: str
    placement: Placement
    steps: tuple[Step, ...]
    reason: str
    added: tuple[Machine, ...] = ()
    removed: tuple[str, ...] = ()
    #: The rates that the strategy expects; None where it makes no projection.
    projected: Load | None = None


@dataclass(frozen=True)
class NothingToDo:
    strategy: str
    reason: str


@dataclass(frozen=True)
class DoesNotFit:
    strategy: str
    reason: str
    #: How many instances have no place.
    missing: int


Outcome = Decision | NothingToDo | DoesNotFit
