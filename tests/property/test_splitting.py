"""However a batch is split: every row is in it once, in proportion to the instances, and keys stay together."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.channels.records import Segment
from penstock.cluster.model import Cluster, Slot
from penstock.engine.message.shares import (
    SHARED,
    Bundle,
    Descriptor,
    InputRange,
    Share,
    Spread,
    bundles_of,
    cuts,
    links_of,
    part,
    runs,
    split,
    traffic_of,
)
from penstock.engine.message.task_shares import split_by_task

slots = st.builds(Slot, st.sampled_from(["a", "b", "c"]), st.integers(0, 3), st.integers(1, 4))
placements = st.dictionaries(slots, st.integers(1, 9), min_size=1, max_size=6)


def segments_of(sizes: list[int]) -> list[Segment]:
    found, first = [], 0
    for index, rows in enumerate(sizes):
        found.append(
            Segment("c", f"c/{index}", rows, rows * 8, "a/0", 1.0, 2.0, first_row=first, operator="op", batch=index)
        )
        first += rows
    return found


def rows_of(share: Share, starts: dict[str, int]) -> list[int]:
    return [starts[piece.path] + row for piece in share.pieces for row in range(piece.start, piece.stop)]


@given(placements)
def test_bundles_hold_all_instances_in_no_more_processes_than_cores(placement: dict[Slot, int]) -> None:
    bundles = bundles_of(placement)
    for slot, instances in placement.items():
        mine = [bundle.instances for bundle in bundles if bundle.slot == slot]
        assert sum(mine) == instances
        assert len(mine) == min(instances, slot.cores)
        assert max(mine) - min(mine) <= 1


@given(st.integers(0, 10_000), st.lists(st.integers(1, 20), min_size=1, max_size=10), st.integers(0, 9))
def test_cuts_are_a_partition_in_proportion(total: int, weights: list[int], turn: int) -> None:
    ranges = cuts(total, weights, turn % len(weights))
    assert sum(stop - start for start, stop in ranges) == total
    assert sorted(row for start, stop in ranges for row in range(start, stop)) == list(range(total))
    for (start, stop), weight in zip(ranges, weights, strict=True):
        assert abs((stop - start) - total * weight / sum(weights)) < 1


@given(st.integers(0, 1000), st.integers(1, 50))
def test_parts_add_up(total: int, parts: int) -> None:
    assert sum(part(total, index, parts) for index in range(parts)) == total


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), placements, st.data())
def test_shuffled_rows_are_in_exactly_one_share(
    sizes: list[int], placement: dict[Slot, int], data: st.DataObject
) -> None:
    total = sum(sizes)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    segments = segments_of(sizes)
    starts = {segment.path: segment.first_row for segment in segments}
    shares = split([InputRange(segments, start, stop, Spread.SHUFFLE)], bundles_of(placement))
    # In order, too: what the shares write is published in their order.
    assert [row for share in shares for row in rows_of(share, starts)] == list(range(start, stop))
    assert all(share.pieces for share in shares)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), placements, st.data())
def test_rows_of_several_inputs_are_in_order_each(
    sizes: list[int], placement: dict[Slot, int], data: st.DataObject
) -> None:
    segments = segments_of(sizes)
    starts = {segment.path: segment.first_row for segment in segments}
    inputs = []
    for _ in range(2):
        start = data.draw(st.integers(0, sum(sizes)))
        inputs.append(InputRange(segments, start, data.draw(st.integers(start, sum(sizes))), Spread.SHUFFLE))
    shares = split(inputs, bundles_of(placement))
    both = Counter(row for share in shares for row in rows_of(share, starts))
    assert both == Counter(row for one in inputs for row in range(one.start, one.stop))
    first = split(inputs[:1], bundles_of(placement))
    assert [row for share in first for row in rows_of(share, starts)] == list(range(inputs[0].start, inputs[0].stop))


@given(st.lists(st.integers(1, 1000), max_size=30), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_runs_are_all_items_in_order_and_about_in_proportion(sizes: list[int], weights: list[int]) -> None:
    parts = runs(sizes, weights)
    assert [index for run in parts for index in run] == list(range(len(sizes)))
    for run, weight in zip(parts, weights, strict=True):
        mine = sum(sizes[index] for index in run)
        assert abs(mine - sum(sizes) * weight / sum(weights)) <= max(sizes, default=0)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), placements, st.integers(1, 64))
def test_every_group_of_keys_has_one_bundle_whatever_the_batch(
    sizes: list[int], placement: dict[Slot, int], groups: int
) -> None:
    bundles = bundles_of(placement)
    segments = segments_of(sizes)
    owners: dict[int, set[Bundle]] = {}
    for stop in (segments[0].stop_row, segments[-1].stop_row):
        for share in split([InputRange(segments, 0, stop, Spread.BY_KEY, groups)], bundles):
            for piece in share.pieces:
                for group in range(piece.first_group, piece.stop_group):
                    owners.setdefault(group, set()).add(share.bundle)
    assert sorted(owners) == list(range(groups))
    # Two bundles of one slot may look alike; what counts is that a group has one place.
    assert all(len(who) == 1 for who in owners.values())


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), placements)
def test_broadcast_rows_are_in_every_share(sizes: list[int], placement: dict[Slot, int]) -> None:
    segments = segments_of(sizes)
    starts = {segment.path: segment.first_row for segment in segments}
    bundles = bundles_of(placement)
    shares = split([InputRange(segments, 0, sum(sizes), Spread.BROADCAST)], bundles)
    assert len(shares) == len(bundles)
    for share in shares:
        assert Counter(rows_of(share, starts)) == Counter(range(sum(sizes)))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), placements)
def test_a_descriptor_says_what_its_share_says(sizes: list[int], placement: dict[Slot, int]) -> None:
    for share in split([InputRange(segments_of(sizes), 0, sum(sizes), Spread.SHUFFLE)], bundles_of(placement)):
        parsed = Descriptor.parse(share.as_descriptor())
        assert parsed == Descriptor(share.bundle.slot.name, share.bundle.instances, share.pieces, None)


def test_small_batches_go_around() -> None:
    bundles = bundles_of(dict.fromkeys(Cluster.of(["a", "b"], 2).slots, 1))
    segments = segments_of([4])
    who = [split([InputRange(segments, row, row + 1, Spread.SHUFFLE)], bundles)[0].bundle.slot for row in range(4)]
    assert len(set(who)) == 4


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=8), placements, st.sampled_from([Spread.SHUFFLE, Spread.BY_KEY])
)
def test_traffic_is_all_bytes_of_the_batch(sizes: list[int], placement: dict[Slot, int], spread: Spread) -> None:
    segments, bundles = segments_of(sizes), bundles_of(placement)
    shares = split([InputRange(segments, 0, sum(sizes), spread, groups=64)], bundles)
    traffic = traffic_of(shares, {segment.path: segment.bytes / segment.rows for segment in segments})
    assert {consumer for _, consumer in traffic} <= {slot.name for slot in placement}
    # Every way is rounded by itself.
    assert abs(sum(traffic.values()) - sum(segment.bytes for segment in segments)) <= len(traffic)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), placements, st.sampled_from(list(Spread)))
def test_over_links_comes_what_other_machines_wrote_and_what_is_shared_comes_once(
    sizes: list[int], placement: dict[Slot, int], spread: Spread
) -> None:
    segments, bundles = segments_of(sizes), bundles_of(placement)
    ranges = [InputRange(segments, 0, sum(sizes), spread, groups=64)]
    shares = split_by_task(ranges, bundles) if spread is Spread.BY_TASK else split(ranges, bundles)
    bytes_per_row = {segment.path: segment.bytes / segment.rows for segment in segments}
    links = links_of(shares, bytes_per_row)
    assert all(sender == "a" and not slot.startswith("a/") for sender, slot in links)
    if spread in SHARED:
        others = {slot.machine for slot in placement} - {"a"}
        assert sum(links.values()) == sum(sizes) * 8 * len(others)
    else:
        traffic = traffic_of(shares, bytes_per_row)
        assert links == {("a", slot): size for (_, slot), size in traffic.items() if not slot.startswith("a/")}


def test_nothing_comes_over_a_link_that_nobody_knows_the_machine_of() -> None:
    segment = Segment("c", "c/0", 10, 80, "task/3", 1.0, 2.0, first_row=0, operator="op", batch=0)
    shares = split([InputRange([segment], 0, 10, Spread.SHUFFLE)], bundles_of({Slot("b", 0): 1}))
    assert links_of(shares, {"c/0": 8.0}) == {}
