"""A placement on the slots that are left: nothing is lost, and nothing moves that need not."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.plans.repair import repair
from penstock.strategies.mapping.tasks import follow_instances

SLOTS = Cluster.of(["a", "b", "c"], 2).slots
TASKS = 7
spread = st.dictionaries(st.sampled_from(SLOTS), st.integers(1, 5), min_size=1)
some_slots = st.sets(st.sampled_from(SLOTS), min_size=1)
placements = st.builds(
    lambda instances, tasks: Placement(instances, {"k": tuple(tasks)}),
    st.fixed_dictionaries({"m": spread, "k": spread}),
    st.lists(st.sampled_from(SLOTS), min_size=TASKS, max_size=TASKS),
)


@given(placements, some_slots)
def test_everything_is_on_usable_slots_and_nothing_is_lost(placement: Placement, usable: set[Slot]) -> None:
    repaired = repair(placement, usable)
    assert repaired.slots <= usable
    for operator in ("m", "k"):
        assert repaired.total(operator) == placement.total(operator)
    assert len(repaired.tasks["k"]) == TASKS


@given(placements, some_slots)
def test_what_is_well_stays_where_it_is(placement: Placement, usable: set[Slot]) -> None:
    repaired = repair(placement, usable)
    for operator, slots in placement.instances.items():
        for slot, count in slots.items():
            assert slot not in usable or repaired.of(operator)[slot] >= count
    for before, after in zip(placement.tasks["k"], repaired.tasks["k"], strict=True):
        assert before not in usable or after == before


@given(placements, some_slots)
def test_repairing_twice_is_repairing_once(placement: Placement, usable: set[Slot]) -> None:
    repaired = repair(placement, usable)
    assert repair(repaired, usable) is repaired


@given(placements)
def test_without_any_slot_nothing_changes(placement: Placement) -> None:
    assert repair(placement, set()) is placement
    assert repair(placement, SLOTS) is placement


@given(placements, some_slots)
def test_tasks_go_where_their_operator_has_instances(placement: Placement, usable: set[Slot]) -> None:
    repaired = repair(placement, usable)
    moved = [after for before, after in zip(placement.tasks["k"], repaired.tasks["k"], strict=True) if before != after]
    assert set(moved) <= set(repaired.of("k"))


@given(st.lists(st.sampled_from(SLOTS), min_size=TASKS, max_size=TASKS).map(tuple), spread)
def test_tasks_follow_instances_by_their_share(tasks: tuple[Slot, ...], instances: dict[Slot, int]) -> None:
    after = follow_instances(tasks, instances)
    held, total = Counter(after), sum(instances.values())
    assert sum(held.values()) == TASKS
    for slot, count in instances.items():
        assert abs(held[slot] - TASKS * count / total) < 1
    # As few as possible move: whoever has too many gives away only those.
    stayed = sum(before == now for before, now in zip(tasks, after, strict=True))
    assert stayed == sum(min(count, held[slot]) for slot, count in Counter(tasks).items())
    assert follow_instances(after, instances) == after
