"""Rules that give and take one by one, against the same rules as they are told: before each step all slots are looked
at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.model import Slot
from penstock.strategies.mapping.keeping import least_loaded, resized
from penstock.strategies.mapping.tasks import follow
from penstock.strategies.mapping.turns import turns

SLOTS = [Slot(machine, index, cores) for machine, index, cores in (("a", 0, 2), ("a", 1, 1), ("b", 0, 3), ("c", 0, 2))]
numbers = st.dictionaries(st.sampled_from(SLOTS), st.integers(1, 4), min_size=1)
loads = st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 9)).map(Counter)
tasks_on = st.lists(st.sampled_from(SLOTS), max_size=12).map(tuple)


@given(numbers, loads, st.integers(0, 20))
def test_the_slot_that_ranks_first_at_that_moment_is_next(
    divisors: dict[Slot, int], has: Counter[Slot], gets: int
) -> None:
    expected, held = [], has.copy()
    for _ in range(gets):
        expected.append(min(divisors, key=lambda slot: (held[slot] / divisors[slot], slot)))
        held[expected[-1]] += 1
    found = []
    for slot in islice(turns(divisors, lambda slot: (has[slot] / divisors[slot],)), gets):
        found.append(slot)
        has[slot] += 1
    assert found == expected


@given(numbers, loads, st.integers(0, 20), st.sets(st.sampled_from(SLOTS), min_size=1))
def test_instances_come_and_go_one_by_one(
    before: dict[Slot, int], others: Counter[Slot], count: int, usable: set[Slot]
) -> None:
    load, placed = others + Counter(before), Counter({slot: before[slot] for slot in usable if slot in before})
    found = resized(before, count, usable, counts := load.copy())
    while placed.total() < count:
        slot = least_loaded(usable, load, placed)
        placed[slot] += 1
        load[slot] += 1
    while placed.total() > count:
        slot = max(+placed, key=lambda one: (load[one] / one.cores, placed[one], one))
        placed[slot] -= 1
        load[slot] -= 1
    assert found == dict(+placed)
    assert counts == load


def told(
    tasks: tuple[Slot, ...], before: Mapping[Slot, int], after: Mapping[Slot, int], sizes: list[int]
) -> list[Slot]:
    """What `follow` says about itself, step by step."""
    now = list(tasks)
    share = {slot: len(tasks) * count // sum(after.values()) for slot, count in after.items()}

    def held(slot: Slot) -> list[int]:
        return [task for task, on in enumerate(now) if on == slot]

    def neediest() -> Slot | None:
        short = {slot: share[slot] - len(held(slot)) for slot in after if after[slot] > before.get(slot, 0)}
        return max((slot for slot in sorted(short) if short[slot] > 0), key=lambda slot: short[slot], default=None)

    for task in [task for task, slot in enumerate(tasks) if slot not in after]:
        now[task] = neediest() or min(after, key=lambda slot: ((len(held(slot)) + 1) / after[slot], slot))
    while taker := neediest():
        gives = [
            (-len(mine) / after[slot], after[slot], *min((sizes[task], slot, -task) for task in mine))
            for slot in after
            if (mine := held(slot))
        ]
        now[-min(gives)[-1]] = taker
    return now


@given(tasks_on, numbers, numbers, st.none() | st.lists(st.sampled_from((0, 1, 2, 5, 100)), min_size=12, max_size=12))
def test_tasks_go_one_by_one(
    tasks: tuple[Slot, ...], before: dict[Slot, int], after: dict[Slot, int], drawn: list[int] | None
) -> None:
    sizes = drawn[: len(tasks)] if drawn is not None else None
    assert list(follow(tasks, before, after, sizes)) == told(tasks, before, after, sizes or [0] * len(tasks))
