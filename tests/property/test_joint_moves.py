"""The mapping `fewest_moves` where two operators change together. It places one after the other, in the best order: the
fewest instances are without a core, and then the least moves. These tests say how far that is from the least that both
together could move, on small cases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations, product

from hypothesis import given
from hypothesis import strategies as st
from monitor_fakes import DEFINITION

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.strategies.mapping import Wanted, place

NAMES = ("work", "out")
#: Instances of one operator, by the number of the slot.
Spread = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Two keyed operators that get other numbers of instances; `rows` stays where it is."""

    cluster: Cluster
    before: Placement
    counts: Mapping[str, int]

    def cost(self, order: tuple[str, ...] = NAMES) -> tuple[int, int]:
        """How many instances have no core, and how many tasks move, if the operators are given in this order."""
        instances = {"rows": 1} | {name: self.counts[name] for name in order}
        tasks = {name: len(self.before.tasks[name]) for name in order}
        after = place("fewest_moves", Wanted(DEFINITION, self.cluster, instances, tasks, self.before))
        assert isinstance(after, Placement)
        moved = sum(_moved(self.before.tasks[name], after.tasks[name]) for name in NAMES)
        return self._crowded(after.load()), moved

    def least(self, crowded: int) -> int:
        """The fewest tasks of both that move if one is placed after the other, as cores permit, but anywhere: the first
        one may move more than it need, for the sake of the second. At most so many instances have no core."""
        costs = {name: self._costs(name) for name in NAMES}
        found = []
        for first, second in permutations(NAMES):
            for spread in self._permitted(first, costs[first], self.before.of("rows")):
                load = self._plus(self.before.of("rows"), spread)
                for other in self._permitted(second, costs[second], load):
                    if self._crowded(self._plus(load, other)) <= crowded:
                        found.append(costs[first][spread] + costs[second][other])
        return min(found)

    def _plus(self, load: Mapping[Slot, int], spread: Spread) -> Counter[Slot]:
        more = Counter(dict(zip(self.cluster.slots, spread, strict=True)))
        more.update(load)
        return more

    def _crowded(self, load: Mapping[Slot, int]) -> int:
        """If there are more instances than cores, every core counts as often as need be."""
        slots = self.cluster.slots
        times = -(-(1 + sum(self.counts.values())) // sum(slot.cores for slot in slots))
        return sum(max(load.get(slot, 0) - slot.cores * times, 0) for slot in slots)

    def _costs(self, name: str) -> dict[Spread, int]:
        """The fewest tasks that move, for all ways to spread the instances of one operator, by trying all ways to place
        its tasks."""
        slots, tasks, count = self.cluster.slots, self.before.tasks[name], self.counts[name]
        size = -(-len(tasks) // count)
        least: dict[Spread, int] = {}
        for after in product(slots, repeat=len(tasks)):
            held = tuple(after.count(slot) for slot in slots)
            least[held] = min(least.get(held, len(tasks)), _moved(tasks, after))
        found = {}
        for spread in product(range(count + 1), repeat=len(slots)):
            fair = [
                cost
                for held, cost in least.items()
                if all(number <= one <= size * number for number, one in zip(spread, held, strict=True))
            ]
            if sum(spread) == count and fair:
                found[spread] = min(fair)
        return found

    def _permitted(self, name: str, spreads: Mapping[Spread, int], load: Mapping[Slot, int]) -> Iterator[Spread]:
        """As many as there are cores for, times the smallest number that is enough; what is there may stay."""
        times, count, had = 1, self.counts[name], self.before.of(name)
        while True:
            most = [max(slot.cores * times - load.get(slot, 0), had.get(slot, 0)) for slot in self.cluster.slots]
            if sum(most) >= count:
                return (one for one in spreads if all(number <= room for number, room in zip(one, most, strict=True)))
            times += 1


def _moved(before: tuple[Slot, ...], after: tuple[Slot, ...]) -> int:
    return sum(one != two for one, two in zip(before, after, strict=True))


def drawn(draw: random.Random) -> Case:
    cluster = Cluster.of("abc"[: draw.randint(2, 3)], 1, cores=draw.randint(1, 2))
    tasks = {name: tuple(draw.choices(cluster.slots, k=draw.randint(2, 5))) for name in NAMES}
    instances: dict[str, dict[Slot, int]] = {"rows": {draw.choice(cluster.slots): 1}}
    counts = {}
    for name in NAMES:
        instances[name] = {slot: draw.randint(1, held) for slot, held in sorted(Counter(tasks[name]).items())}
        others = set(range(1, len(tasks[name]) + 1)) - {sum(instances[name].values())}
        counts[name] = draw.choice(sorted(others))
    return Case(cluster, Placement(instances, tasks), counts)


@given(st.integers(0, 1 << 32))
def test_the_order_in_which_operators_are_given_does_not_change_what_it_costs(seed: int) -> None:
    case = drawn(random.Random(seed))
    assert case.cost(NAMES) == case.cost(NAMES[::-1])


def test_two_operators_are_near_the_joint_minimum() -> None:
    draw = random.Random(17)
    distances: Counter[int] = Counter()
    for case in (drawn(draw) for _ in range(150)):
        crowded, moved = case.cost()
        distances[moved - case.least(crowded)] += 1
    assert min(distances) == 0
    assert distances[0] >= 145, sorted(distances.items())
    assert max(distances) <= 1, sorted(distances.items())
