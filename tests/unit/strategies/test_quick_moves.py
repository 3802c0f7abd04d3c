"""How long the rules take that move tasks and instances. `fewest_moves` has such a test of its own."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.plans.repair import repair
from penstock.strategies.mapping.keeping import resized
from penstock.strategies.mapping.tasks import deal_tasks, follow, follow_instances


@dataclass(frozen=True)
class Change:
    """One keyed operator, and its instances before and after."""

    before: Mapping[Slot, int]
    after: Mapping[Slot, int]
    tasks: tuple[Slot, ...]
    sizes: tuple[int, ...] | None


def changes(slots: Sequence[Slot], tasks: int, sized: bool) -> dict[str, Change]:
    draw, half = random.Random(tasks), len(slots) // 2
    sizes = tuple(draw.randrange(1 << 24) for _ in range(tasks)) if sized else None
    wide = Counter(draw.choices(slots, k=tasks // 2))
    narrow = Counter(draw.choices(slots[:half], k=tasks // 4))
    instances = {
        "from one slot to all": ({slots[0]: tasks // 4}, wide),
        "to twice as many slots": (narrow, narrow + Counter(dict.fromkeys(slots[half:], 5))),
        "to half of the slots": (wide, {slot: count for slot, count in wide.items() if slot in slots[:half]}),
        "to one slot": (wide, {slots[0]: tasks // 4}),
        "to other slots": (narrow, dict.fromkeys(slots[half:], 5)),
    }
    return {
        what: Change(before, after, deal_tasks(tasks, before), sizes) for what, (before, after) in instances.items()
    }


def keeps(change: Change) -> object:
    """A mapping chooses the slots: of those that are wanted, where there are some now."""
    return resized(change.before, sum(change.after.values()), sorted(change.after), Counter(change.before))


RULES: Mapping[str, Callable[[Change], object]] = {
    "follow": lambda one: follow(one.tasks, one.before, one.after, one.sizes),
    "follow_instances": lambda one: follow_instances(one.tasks, one.after, one.sizes),
    "repair": lambda one: repair(Placement({"work": one.before}, {"work": one.tasks}), list(one.after)),
    "resized": keeps,
}

# Bar: 200 tasks on 50 slots below 0.1 s, and 10,000 tasks on 1,000 slots below 2 s


@pytest.mark.parametrize(("tasks", "slots", "bar"), [(200, 50, 0.1), (10_000, 1000, 2.0)])
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_whatever_moves_it_is_quick(
    rule: str, tasks: int, slots: int, bar: float, sized: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """CPU time of this thread, the least of three: others use the cores too while tests run."""
    cluster = Cluster.of([f"m{number:04}" for number in range(slots // 2)], slots=2, cores=4)
    slowest = 0.0
    for change in changes(cluster.slots, tasks, sized).values():
        seconds = []
        for _ in range(3):
            began = time.thread_time()
            RULES[rule](change)
            seconds.append(time.thread_time() - began)
        slowest = max(slowest, min(seconds))
    with capsys.disabled():
        print(f"\n{rule}, {tasks} tasks on {slots} slots: {slowest:.4f} s", end="")
    assert slowest < bar
