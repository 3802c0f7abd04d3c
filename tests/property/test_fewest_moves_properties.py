"""The mapping `fewest_moves` against all placements there are, on small cases: nothing moves less, and of those that
move as little, none uses fewer machines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from monitor_fakes import DEFINITION

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.monitor.sample import StateSize
from penstock.monitor.snapshot import OperatorSnapshot, Snapshot
from penstock.strategies.mapping import NoRoom, Wanted, place


@dataclass(frozen=True)
class Case:
    """One keyed operator, `work`, that gets another number of instances; `rows` and `out` stay where they are."""

    cluster: Cluster
    before: Placement
    count: int
    sizes: tuple[int, ...] | None

    @property
    def wanted(self) -> Wanted:
        tasks = self.before.tasks["work"]
        state = {task: StateSize(bytes=size) for task, size in enumerate(self.sizes or ())}
        seen = {name: OperatorSnapshot(name, "keyed", 1, state=state) for name in self.before.instances}
        snapshot = Snapshot(DEFINITION, self.cluster, self.before, 0.0, 60.0, 6, seen, {}, {}, {}, {})
        instances = {name: self.before.total(name) for name in self.before.instances} | {"work": self.count}
        return Wanted(DEFINITION, self.cluster, instances, {"work": len(tasks)}, self.before, snapshot=snapshot)

    def cost(self, after: tuple[Slot, ...]) -> tuple[int, int]:
        """Bytes, if they are known, and tasks that move."""
        moved = [task for task, slot in enumerate(self.before.tasks["work"]) if after[task] != slot]
        return sum(self.sizes[task] for task in moved) if self.sizes else 0, len(moved)

    def most(self) -> dict[Slot, int]:
        """As many as there are cores for all operators, times the smallest number that is enough."""
        others = self.before.load()
        for slot, count in self.before.of("work").items():
            others[slot] -= count
        times = 1
        while True:
            most = {
                slot: max(slot.cores * times - others[slot], self.before.of("work").get(slot, 0))
                for slot in self.cluster.slots
            }
            if sum(most.values()) >= self.count:
                return most
            times += 1

    def machines(self, slots: set[Slot]) -> int:
        others = {slot for name in ("rows", "out") for slot in self.before.of(name)}
        return len({slot.machine for slot in slots | others})

    def best(self) -> tuple[tuple[int, int], int]:
        """The least that any placement costs, and the fewest machines that are used then."""
        tasks, most = len(self.before.tasks["work"]), self.most()
        size = -(-tasks // self.count)
        found = []
        for after in product(self.cluster.slots, repeat=tasks):
            held = {slot: after.count(slot) for slot in set(after)}
            least = {slot: -(-count // size) for slot, count in held.items()}
            room = {slot: min(count, most[slot]) for slot, count in held.items()}
            fits = all(least[slot] <= room[slot] for slot in held)
            if fits and sum(least.values()) <= self.count <= sum(room.values()):
                found.append((self.cost(after), self.machines(set(after))))
        return min(found)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    machines = draw(st.integers(1, 3))
    cores = draw(st.integers(1, 3))
    where = Cluster(
        tuple(
            Machine(name, tuple(Slot(name, index, cores) for index in range(draw(st.integers(1, 2)))))
            for name in "abc"[:machines]
        )
    )
    assume(len(where.slots) <= 4)
    slot = st.sampled_from(where.slots)
    tasks = draw(st.lists(slot, min_size=1, max_size=6))
    held = {one: tasks.count(one) for one in tasks}
    work = {one: draw(st.integers(1, count)) for one, count in sorted(held.items())}
    count = draw(st.integers(1, len(tasks)))
    assume(count != sum(work.values()))
    sizes = draw(st.none() | st.tuples(*[st.sampled_from((0, 1, 2, 5, 100))] * len(tasks)))
    before = Placement({"rows": {draw(slot): 1}, "work": work, "out": {draw(slot): 1}}, {"work": tuple(tasks)})
    return Case(where, before, count, sizes)


@settings(max_examples=settings.default.max_examples * 3 // 2)
@given(cases())
def test_nothing_moves_less_and_then_no_fewer_machines_are_used(case: Case) -> None:
    after = place("fewest_moves", case.wanted)
    assert isinstance(after, Placement)
    tasks, work = after.tasks["work"], after.of("work")
    size = -(-len(tasks) // case.count)
    for slot, count in work.items():
        assert count <= tasks.count(slot) <= size * count, "an instance has its share of the tasks, and at least one"
        assert count <= case.most()[slot]
    assert set(tasks) == set(work)
    assert {name: after.of(name) for name in ("rows", "out")} == {
        name: case.before.of(name) for name in ("rows", "out")
    }
    assert (case.cost(tasks), case.machines(set(work))) == case.best()


@given(cases(), st.integers(1, 6))
def test_no_slot_gets_more_than_it_may(case: Case, bound: int) -> None:
    after = place("fewest_moves", replace(case.wanted, slot_instances=bound))
    others = {slot: sum(case.before.of(name).get(slot, 0) for name in ("rows", "out")) for slot in case.cluster.slots}
    room = sum(max(bound - count, 0) for count in others.values())
    if isinstance(after, NoRoom):
        assert after.missing == case.count - room > 0
    else:
        assert case.count <= room
        assert all(count + others[slot] <= bound for slot, count in after.of("work").items())
