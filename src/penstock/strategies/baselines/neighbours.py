"""Moves by link load: instances of adjacent operators come together on one machine, or apart (Stela, section III-C).

In the paper, least link load sorts instances by the load of their links and moves them so that as many neighbours as
possible are on one server; most link load does the reverse. Read as: each new machine begins with the first instance of
that order. After that the instance moves that gains most pairs of neighbours on one machine (or loses most); the order
decides between equals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.cluster.model import Placement, Slot
from penstock.strategies.load import Load


@dataclass(frozen=True)
class Move:
    """An instance that goes from a slot to a new machine."""

    operator: str
    origin: Slot
    machine: str
    reason: str


def by_neighbours(
    load: Load, placement: Placement, rank: Sequence[int], machines: Sequence[str], wanted: int, sign: int
) -> Iterator[Move]:
    """So many moves to each of the new machines; `sign` is 1 to bring neighbours together, -1 to bring them apart."""
    crowd = _Crowd(load, placement)
    free = dict.fromkeys(machines, wanted)
    while open_ := [machine for machine in machines if free[machine]]:
        if first := [machine for machine in open_ if free[machine] == wanted]:
            to = first[0]
            place, origin = min(crowd.old(), key=lambda one: (rank[one[0]], -crowd.held(*one), one[1]))
        else:
            place, origin, to = min(
                ((place, origin, machine) for place, origin in crowd.old() for machine in open_),
                key=lambda one: (
                    -sign * crowd.gain(*one),
                    rank[one[0]],
                    -free[one[2]],
                    -crowd.held(one[0], one[1]),
                    one,
                ),
            )
        gain = crowd.gain(place, origin, to)
        slot = crowd.move(place, origin, to)
        free[to] -= 1
        what = "more" if gain >= 0 else "fewer"
        reason = f"{abs(gain)} {what} neighbours on its machine; number {rank[place]} in the order of"
        yield Move(load.operators[place].name, slot, to, reason)


class _Crowd:
    """Who is on which machine while instances move."""

    def __init__(self, load: Load, placement: Placement) -> None:
        self._on = _on_machines(load, placement)
        self._around = [(*load.parents[place], *load.children[place]) for place in range(len(load.operators))]
        self._slots = [Counter(dict(placement.of(one.name))) for one in load.operators]
        #: What may still move: place and machine, with so many instances.
        self._old = {(place, machine) for place, machines in enumerate(self._on) for machine in machines}

    def old(self) -> set[tuple[int, str]]:
        return self._old

    def held(self, place: int, machine: str) -> int:
        return self._on[place][machine]

    def gain(self, place: int, origin: str, to: str) -> int:
        """Pairs of neighbours on one machine that a move adds."""
        return sum(self._on[other][to] - self._on[other][origin] for other in self._around[place])

    def move(self, place: int, origin: str, to: str) -> Slot:
        """Move one instance; returns its slot, the fullest that the operator has there."""
        slots = self._slots[place]
        slot = max((one for one in slots if one.machine == origin), key=lambda one: (slots[one], one))
        slots[slot] -= 1
        slots += Counter()  # drops those that are empty
        self._on[place][origin] -= 1
        self._on[place][to] += 1
        if not self._on[place][origin]:
            self._old.discard((place, origin))
        return slot


def _on_machines(load: Load, placement: Placement) -> list[Counter[str]]:
    """By operator: how many of its instances are on each machine."""
    found: list[Counter[str]] = []
    for operator in load.operators:
        machines: Counter[str] = Counter()
        for slot, count in placement.of(operator.name).items():
            machines[slot.machine] += count
        found.append(machines)
    return found
