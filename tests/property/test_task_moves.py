"""Which tasks move when the instances of their operator are on other slots, against all assignments there are, on small
cases: no assignment that is as fair moves fewer tasks, and none of those that move as few moves fewer bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.plans.repair import repair
from penstock.strategies.mapping.tasks import follow, follow_instances

SLOTS = Cluster.of("abc", 1).slots
Tasks = tuple[Slot, ...]
Held = Mapping[Slot, int]


@dataclass(frozen=True)
class Case:
    """The tasks of an operator, their sizes if these are known, and its instances before and after a change."""

    tasks: Tasks
    before: Mapping[Slot, int]
    after: Mapping[Slot, int]
    sizes: tuple[int, ...] | None

    def cost(self, after: Tasks) -> tuple[int, int]:
        """The tasks and the bytes that move."""
        moved = [task for task, slot in enumerate(self.tasks) if after[task] != slot]
        return len(moved), sum(self.sizes[task] for task in moved) if self.sizes else 0

    def quota(self, slot: Slot) -> Fraction:
        return Fraction(len(self.tasks) * self.after[slot], sum(self.after.values()))

    def least(self, found: Tasks, uneven: Callable[[Held], Any], fair: Callable[[Held], bool]) -> tuple[int, int]:
        """The least that any fair assignment costs that is as even as the one that was found."""
        bound = uneven(Counter(found))
        every = product(sorted(self.after), repeat=len(self.tasks))
        return min(self.cost(one) for one in every if fair(held := Counter(one)) and uneven(held) <= bound)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(2, 6))
    tasks = draw(st.tuples(*[st.sampled_from(SLOTS)] * count))
    before = {slot: draw(st.integers(1, held)) for slot, held in sorted(Counter(tasks).items())}
    after = {slot: draw(st.integers(0, 3)) for slot in SLOTS}
    assume(any(after.values()))
    sizes = draw(st.permutations((0, 1, 1, 2, 5, 100)).map(lambda all_: tuple(all_[:count])) | st.none())
    return Case(tasks, before, {slot: number for slot, number in after.items() if number}, sizes)


@given(cases())
def test_tasks_that_follow_their_shares_move_the_least(case: Case) -> None:
    """Every slot gets its share: an assignment is as even if its slots are together as near to their shares."""
    found = follow_instances(case.tasks, case.after, case.sizes)

    def from_shares(held: Held) -> Fraction:
        return sum((abs(held.get(slot, 0) - case.quota(slot)) for slot in case.after), Fraction(0))

    assert all(abs(Counter(found).get(slot, 0) - case.quota(slot)) < 1 for slot in case.after), "no slot is short"
    every = (Counter(one) for one in product(sorted(case.after), repeat=len(case.tasks)))
    assert from_shares(Counter(found)) == min(map(from_shares, every)), "none is more even"
    assert case.cost(found) == case.least(found, from_shares, lambda _: True)


@given(cases())
def test_tasks_that_follow_their_shares_home_cost_no_more(case: Case) -> None:
    """Where they were before does not make a way longer, and leads home where that is as short as any other."""
    away = follow_instances(case.tasks, case.after, case.sizes)
    back, blind = (follow_instances(away, case.before, case.sizes, homes) for homes in (case.tasks, ()))

    def cost(after: Tasks) -> tuple[int, int]:
        moved = [task for task, slot in enumerate(away) if after[task] != slot]
        return len(moved), sum(case.sizes[task] for task in moved) if case.sizes else 0

    def at_home(after: Tasks) -> int:
        return sum(slot == home for slot, home in zip(after, case.tasks, strict=True))

    assert cost(back) == cost(blind)
    assert at_home(back) >= at_home(blind)


@given(cases())
def test_tasks_that_new_instances_take_are_the_least(case: Case) -> None:
    """Slots that got instances hold their quota, rounded down: an assignment is as even if the fullest slot is no
    fuller, then the next one, and so on."""
    found = follow(case.tasks, case.before, case.after, case.sizes)
    grown = [slot for slot, count in case.after.items() if count > case.before.get(slot, 0)]

    def fair(held: Held) -> bool:
        return all(held.get(slot, 0) >= case.quota(slot).__floor__() for slot in grown)

    def fullness(held: Held) -> Sequence[Fraction]:
        return sorted((Fraction(held.get(slot, 0), count) for slot, count in case.after.items()), reverse=True)

    assert fair(Counter(found))
    assert case.cost(found)[0] == case.least(found, lambda _: 0, fair)[0], "no fair assignment moves fewer tasks"
    assert case.cost(found) == case.least(found, fullness, fair)


@given(cases(), st.sets(st.sampled_from(SLOTS), min_size=1))
def test_a_repair_moves_what_is_on_lost_slots_and_nothing_else(case: Case, usable: set[Slot]) -> None:
    """All of that has to move, so no assignment moves fewer tasks or bytes, and the sizes of tasks leave no choice."""
    found = repair(Placement({"k": case.before}, {"k": case.tasks}), usable).tasks["k"]
    moved = [task for task, slot in enumerate(case.tasks) if found[task] != slot]
    assert moved == [task for task, slot in enumerate(case.tasks) if slot not in usable]
