"""Shares of a keyed operator that needs no shuffle: one a task, in their order, each on the slot of its state."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.channels.records import Segment
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Descriptor, InputRange, Spread, bundles_of
from penstock.engine.message.task_shares import split_by_task, task_bundles

A, B = Slot("a", 0), Slot("b", 0)
SEGMENTS = [
    Segment("c", f"c/{n}", 10, 100, "a/0", 1.0, 2.0, first_row=10 * n, operator="maker", batch=n) for n in range(3)
]


def reading(start: int, stop: int) -> InputRange:
    return InputRange(SEGMENTS, start, stop, Spread.BY_TASK, 3)


def test_every_task_gets_all_pieces_and_takes_its_own_rows() -> None:
    bundles = task_bundles(3, (A, B, A), bundles_of({A: 1, B: 1}))
    shares = split_by_task([reading(5, 25)], bundles)
    assert [share.bundle.slot for share in shares] == [A, B, A]
    for task, share in enumerate(shares):
        pieces = Descriptor.parse(share.as_descriptor()).pieces
        assert [(piece.start, piece.stop) for piece in pieces] == [(5, 10), (0, 10), (0, 5)]
        assert {(piece.first_group, piece.stop_group, piece.spread) for piece in pieces} == {
            (task, task + 1, Spread.BY_TASK)
        }


def test_a_batch_without_rows_has_no_shares() -> None:
    assert split_by_task([reading(7, 7)], task_bundles(2, (A, B), bundles_of({A: 1, B: 1}))) == []
    assert split_by_task([], task_bundles(2, (A, B), bundles_of({A: 1, B: 1}))) == []


def test_no_task_is_left_out_where_the_placement_has_another_number() -> None:
    """Between two placements, at a repartition: the rows of a task without a bundle would be lost."""
    bundles = task_bundles(5, (A, B), bundles_of({A: 1, B: 1}))
    assert [bundle.slot for bundle in bundles] == [A, B, A, B, A]
    assert len(split_by_task([reading(0, 30)], bundles)) == 5


@given(
    st.dictionaries(st.sampled_from([Slot("m", n) for n in range(4)]), st.integers(1, 9), min_size=1),
    st.data(),
)
def test_the_bundles_of_a_slot_have_its_instances(instances: dict[Slot, int], data: st.DataObject) -> None:
    slots = [*instances, *data.draw(st.lists(st.sampled_from(sorted(instances))))]
    counted: Counter[Slot] = Counter()
    for bundle in task_bundles(len(slots), slots, bundles_of(instances)):
        counted[bundle.slot] += bundle.instances
    assert counted == Counter(instances)
