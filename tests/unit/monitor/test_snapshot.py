"""The snapshot: rates over the right time, the true capacity, and a gap for everything that is not known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from monitor_fakes import A1, B0, CLUSTER, DEFINITION, PLACEMENT, levels, sample, work

from penstock.cluster.model import Placement
from penstock.monitor.counts import Counts
from penstock.monitor.evaluation import slope, snapshot_of
from penstock.monitor.latency import LatencySketch
from penstock.monitor.sample import StateSize, Waited

WAITING = {"rows": {}, "work": {"rows->work": 10}, "out": {"work->out": 0, "rows->out": 0}}


def running(seconds: int = 60, silent: str = "") -> Counts:
    """Half a second of batches every second, 100 rows each, and a look every second."""
    counts = Counts(10, 20, since=0)
    for second in range(seconds):
        for name, backlog in WAITING.items():
            if name == silent:
                continue
            counts.see(name, levels(second + 0.9, backlog))
        latency = LatencySketch()
        latency.add(0.5, 100)
        read = {"work->out": 50, "rows->out": 50}
        more = {"rows": {}, "work": {"rows_in": {"rows->work": 100}}, "out": {"rows_in": read, "latency": latency}}
        slots = {"rows": ("a/0",), "work": ("a/1", "b/0"), "out": ("b/1",)}
        for name, where in slots.items():
            if name != silent:
                parts = tuple(work(slot, 100 // len(where)) for slot in where)
                counts.add(sample(name, second + 0.7, 100, slots=parts, **more[name]))
    return counts


def snapshot(counts: Counts, now: float = 60, placement: Placement = PLACEMENT):
    return snapshot_of(counts.window(now), DEFINITION, placement, CLUSTER)


def reasons(found) -> dict[tuple[str, str], bool]:
    return {(gap.subject, gap.metric): gap.grave for gap in found.gaps}


# What is measured


def test_rates_capacity_and_utilisation() -> None:
    found = snapshot(running())
    assert found.complete, found.gaps
    operator = found.operators["work"]
    assert (operator.kind, operator.instances, operator.batches) == ("map", 3, 60)
    assert operator.rate == pytest.approx(100)
    assert operator.emit_rate == pytest.approx(100)
    assert operator.input_rate == pytest.approx(100)
    # 100 rows in twice 0.25 busy seconds: an instance could do 200 a second, whatever comes in.
    assert operator.capacity == pytest.approx(200)
    assert operator.utilisation == pytest.approx(0.5 / 3)
    assert operator.cpu_utilisation == pytest.approx(0.25 / 3)
    assert operator.batch_duration == pytest.approx(0.5)
    assert operator.batch_overhead == pytest.approx(0.25)
    assert operator.slots["b/0"].utilisation == pytest.approx(0.125)
    assert operator.slots["a/1"].rate == pytest.approx(50)


def test_the_longest_share_of_a_batch_is_known_if_it_is_of_all_batches() -> None:
    counts = running()
    assert snapshot(counts).operators["work"].share_duration is None
    counts = Counts(10, 20, since=0)
    for second in range(60):
        counts.see("work", levels(second + 0.9, WAITING["work"]))
        counts.add(sample("work", second + 0.7, longest_share=0.25 if second % 2 else 0.75))
    assert snapshot(counts).operators["work"].share_duration == pytest.approx(0.5)


def test_what_instances_wait_for_is_a_share_of_their_time() -> None:
    counts = Counts(10, 20, since=0)
    for second in range(60):
        counts.see("work", levels(second + 0.9, WAITING["work"]))
        one = work("a/1", 50, waiting_input=0.25, waiting_room=0.125)
        two = work("b/0", 50, waiting_input=1.0, waiting_room=0.5)
        counts.add(sample("work", second + 0.7, slots=(one, two)))
        counts.wait("work", {"b/0": [Waited("b/0", None, 2, 0.5, 0.0)]}, second + 0.9)
    operator = snapshot(counts).operators["work"]
    assert (operator.waiting_input, operator.waiting_room) == pytest.approx((1.75 / 3, 0.625 / 3))
    alone, both = operator.slots["a/1"], operator.slots["b/0"]
    assert (alone.waiting_input, alone.waiting_room) == pytest.approx((0.25, 0.125))
    assert (both.waiting_input, both.waiting_room) == pytest.approx((0.75, 0.25)), "of each of its two instances"


def test_who_has_nothing_to_do_waits_for_input_all_the_time() -> None:
    counts = Counts(10, 20, since=0)
    for at in range(10, 70, 10):
        counts.see("work", levels(at - 0.5, WAITING["work"]))
        told = {"a/1": [Waited("a/1", None, 1, 10.0, 0.0)], "b/0": [Waited("b/0", None, 2, 20.0, 0.0)]}
        counts.wait("work", told, at - 0.5)
        counts.see("out", levels(at - 0.5, WAITING["out"]))
    operators = snapshot(counts).operators
    idle, unknown = operators["work"], operators["out"]
    assert (idle.batches, idle.rate, idle.utilisation) == (0, 0.0, 0.0)
    assert (idle.waiting_input, idle.waiting_room) == pytest.approx((1.0, 0.0))
    assert idle.slots["b/0"].waiting_input == pytest.approx(1.0)
    assert (unknown.utilisation, unknown.waiting_input, unknown.waiting_room) == (0.0, None, None)
    assert unknown.slots["b/1"].waiting_input is None, "nobody has told"


def test_what_was_waited_before_a_reconfiguration_does_not_count_after_it() -> None:
    counts = Counts(10, 20, since=0)
    counts.wait("work", {"a/1": [Waited("a/1", None, 1, 9.0, 0.0)]}, 9.0)
    counts.restart(9.5)
    for at in range(20, 70, 10):
        counts.see("work", levels(at - 0.5, WAITING["work"]))
        counts.wait("work", {"a/1": [Waited("a/1", None, 1, 5.0, 5.0)]}, at - 0.5)
    shown = snapshot(counts).operators["work"].slots["a/1"]
    assert (shown.waiting_input, shown.waiting_room) == pytest.approx((25 / 50.5, 25 / 50.5))


def test_streams_have_what_their_two_ends_measured() -> None:
    found = snapshot(running())
    stream = found.streams["rows->out"]
    assert (stream.producer, stream.output, stream.consumer) == ("rows", "out", "out")
    assert stream.emit_rate == pytest.approx(100)
    assert stream.rate == pytest.approx(50)
    assert found.operators["out"].input_rate == pytest.approx(200)
    assert found.streams["rows->work"].backlog.rows == 10
    assert found.streams["rows->work"].backlog.growth == pytest.approx(0)


def test_sinks_have_throughput_and_latency() -> None:
    sink = snapshot(running()).sinks["out"]
    assert sink.rate == pytest.approx(100)
    assert sink.latency is not None
    assert sink.latency.rows == 6000
    assert sink.latency.p99 == pytest.approx(0.5, rel=0.01)


def test_slots_and_machines_are_what_runs_on_them() -> None:
    found = snapshot(running())
    assert found.slots["b/0"].instances == 2
    assert found.slots["b/0"].cpu_utilisation == pytest.approx(0.125 / 2)
    assert found.slots["b/0"].utilisation == pytest.approx(0.25 / 2)
    assert found.machines["b"].cores == 4
    assert found.machines["b"].instances == 3
    assert found.machines["b"].cpu_utilisation == pytest.approx(0.25 / 4)
    assert found.machines["b"].utilisation == pytest.approx(0.5 / 3)


def test_traffic_is_a_rate_from_slot_to_slot_and_machine_to_machine() -> None:
    counts = running()
    for second in range(60):
        traffic = {("a/0", "a/1"): 300, ("a/0", "b/0"): 500, ("a/1", "b/0"): 10}
        counts.add(sample("work", second + 0.95, 0, 0.1, slots=(work("a/1", 0, 0.0),), traffic=traffic))
    found = snapshot(counts)
    assert found.traffic[("a/0", "b/0")] == pytest.approx(500, rel=0.01)
    assert found.machine_traffic == pytest.approx({("a", "a"): 300, ("a", "b"): 510}, rel=0.01)


def test_what_links_carried_are_rows_and_messages_from_machine_to_machine() -> None:
    counts = running()
    for second in range(60):
        # Of the messages to the driver, one bundle on b/1 does not say how much they were.
        slots = (work("a/0", 0, 0.0, from_driver=20, to_driver=30), work("b/1", 0, 0.0, from_driver=1))
        links = {("a", "b/0"): 500, ("a", "b/1"): 10, ("b", "a/0"): 7}
        counts.add(sample("work", second + 0.95, 0, 0.1, slots=slots, links=links))
    found = snapshot(counts)
    assert found.links == pytest.approx(
        {("a", "b"): 510, ("b", "a"): 7, ("driver", "a"): 20, ("driver", "b"): 1, ("a", "driver"): 30}, rel=0.02
    )
    told = {(one["from"], one["to"]) for one in found.as_json()["links"]}
    assert told == found.links.keys()


def test_what_was_shuffled_is_known_by_machine_where_somebody_asked() -> None:
    counts = running()
    assert snapshot(counts).shuffled == {}
    assert [one["shuffled"] for one in snapshot(counts).as_json()["machines"]] == [None, None]
    for second in range(60):
        counts.shuffle("work", {"b/0": 40, "b/1": 2, "": 9}, second + 0.5)
    assert snapshot(counts).shuffled == pytest.approx({"a": 0.0, "b": 42.0}, rel=0.02)


def test_demand_that_is_not_met_is_input() -> None:
    counts = running()
    for second in range(60):
        counts.see("rows", levels(second + 0.95, unmet_rows=1000 + 50 * second, throttled=True))
    source = snapshot(counts).operators["rows"]
    assert source.rate == pytest.approx(100)
    assert source.input_rate == pytest.approx(150)
    assert (source.unmet_rows, source.throttled, source.held_back) == (1000 + 50 * 59, True, True)


def test_what_a_source_catches_up_on_is_not_offered_anew() -> None:
    """Half a minute of rows was owed when the window began, and was emitted before anybody looked."""
    counts = running()
    counts.add(sample("rows", 0.5, 3_000))
    for second in range(60):
        counts.see("rows", levels(second + 0.95, unmet_rows=0, emitted=3_000 + 100 * second))
    source = snapshot(counts).operators["rows"]
    assert source.rate == pytest.approx(150, rel=0.02)
    assert source.input_rate == pytest.approx(100)


def test_the_backlog_s_growth() -> None:
    counts = running()
    for second in range(60):
        counts.see("work", levels(second + 0.95, {"rows->work": 10_000 - 20 * second}))
    backlog = snapshot(counts).operators["work"].backlog
    assert (backlog.rows, backlog.bytes, backlog.age) == (10_000 - 20 * 59, 8 * (10_000 - 20 * 59), 1.0)
    assert backlog.growth == pytest.approx(-20)


def test_state_and_overhead() -> None:
    counts = running()
    counts.add(sample("work", 59.9, 0, 0.1, state={0: StateSize(5, 50)}, overhead_parts={"planning": 0.04}))
    operator = snapshot(counts).operators["work"]
    assert operator.state == {0: StateSize(5, 50)}
    assert operator.overhead == {"planning": 0.04}


def test_the_slope_is_that_of_the_line_of_least_squares() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
    assert slope([(5, 1), (5, 3)]) is None
    assert slope([(0, 1), (1e-160, 3)]) is None


def test_a_time_too_short_to_measure_makes_no_rate() -> None:
    counts = Counts(10, 20, since=0)
    counts.add(sample("work", 1e-300, seconds=0.0, slots=(work("a/1", 100, 1e-300),)))
    operator = snapshot(counts, now=1e-300).operators["work"]
    assert (operator.rate, operator.capacity, operator.utilisation) == (None, None, None)


# Over which time


def test_a_batch_under_way_counts_neither_its_rows_nor_its_time() -> None:
    counts = Counts(10, 20, since=0)
    for index in range(10):
        counts.add(sample("work", 4.0 * (index + 1), rows=400, seconds=4.0, slots=(work("a/1", 400, 4.0),)))
    counts.see("work", levels(43, batch_since=40))
    operator = snapshot(counts, now=43).operators["work"]
    assert operator.rate == pytest.approx(100)
    # One of the three instances works all the time.
    assert operator.utilisation == pytest.approx(1 / 3)


#: When two bundles begin their first batches, after each other.
ENDS = ((0.0, "a/1"), (0.9, "b/0"))


def taking_turns(bundles: int, counted_to: float) -> Counts:
    """Bundles that always work. Each has a batch of a second under way at any time, and they begin one after the other.
    Batches are numbered in that order, and have been published and counted up to some moment."""
    counts = Counts(10, 20, since=0)
    counts.restart(25.2)
    slots = ("a/1", "a/0", "b/0")[:bundles]
    for number in range(60 * bundles):
        started = number / bundles
        if started + 1 <= counted_to:
            slot = slots[number % bundles]
            more = {"batch": number, "slots": (work(slot, 100, 1.0),)}
            counts.add(sample("work", started + 1, rows=100, seconds=1.0, **more))
    return counts


def open_batches(now: float, bundles: int, taken_off_to: float) -> dict[int, float]:
    """Those that have begun and are still on the list."""
    begun = {number: number / bundles for number in range(60 * bundles) if number / bundles <= now}
    return {number: at for number, at in begun.items() if at + 1 > taken_off_to}


@pytest.mark.parametrize("now", [40.1, 40.3, 40.6, 40.9])
@pytest.mark.parametrize("bundles", [1, 2, 3])
@pytest.mark.parametrize("late", [0.0, 0.7, 2.2])
def test_a_batch_under_way_is_no_time_without_rows_and_a_published_one_no_rows_without_time(
    now: float, bundles: int, late: float
) -> None:
    """However late batches are taken off the list after they were counted."""
    counts = taking_turns(bundles, counted_to=now)
    counts.see("work", levels(now, open_batches=open_batches(now, bundles, now - late)))
    operator = snapshot(counts, now).operators["work"]
    assert operator.rate == pytest.approx(100 * bundles)
    assert operator.instances == 3
    assert operator.utilisation == pytest.approx(bundles / 3)


@pytest.mark.parametrize("counted_to", [38.0, 38.5, 39.0, 39.5, 40.0])
def test_some_of_the_batches_of_one_transaction_are_counted(counted_to: float) -> None:
    """Five were published together, and are reported one by one."""
    counts = taking_turns(2, counted_to)
    counts.see("work", levels(40.2, open_batches=open_batches(40.2, 2, taken_off_to=37.5)))
    assert snapshot(counts, now=40.2).operators["work"].rate == pytest.approx(200)


def test_batches_that_were_counted_after_the_look_bring_a_look_of_their_own() -> None:
    counts = taking_turns(2, 40.0)
    counts.see("work", levels(39.9, open_batches=open_batches(39.9, 2, 39.9)))
    seen = levels(40.5, open_batches=open_batches(40.5, 2, 40.0))
    more = {"batch": 79, "slots": (work("a/0", 100, 1.0),), "levels": seen}
    counts.add(sample("work", 40.5, rows=100, seconds=1.0, **more))
    assert snapshot(counts, now=40.6).operators["work"].rate == pytest.approx(200)


def test_numbers_that_begin_anew_are_not_taken_for_counted_ones() -> None:
    """After a chain was joined or split without a new window."""
    counts = taking_turns(1, 40.0)
    counts.see("work", levels(40.9, open_batches={3: 40.05}))
    assert snapshot(counts, now=40.9).operators["work"].rate == pytest.approx(100, rel=0.005)


@pytest.mark.parametrize("waiting", [{62: 31.0, 63: 31.5, 64: 32.5, 65: 33.5}, {62: 31.0, 63: 45.0}])
def test_a_bundle_that_hangs_does_not_shift_the_time_of_what_is_counted(waiting: dict[int, float]) -> None:
    counts = taking_turns(2, 31.5)
    counts.see("work", levels(46.0, open_batches=waiting))
    assert snapshot(counts, now=46.0).operators["work"].rate == pytest.approx(200)


@pytest.mark.parametrize("idle_until", [26.2, 32.0])
def test_bundles_that_were_idle_before_their_first_batch_have_been_there_all_the_time(idle_until: float) -> None:
    counts = Counts(10, 20, since=0)
    counts.restart(25.2)
    started = sorted((idle_until + second + shift, slot) for second in range(10) for shift, slot in ENDS)
    for number, (at, slot) in enumerate(started[:-2]):
        more = {"batch": number, "slots": (work(slot, 100, 1.0),)}
        counts.add(sample("work", at + 1, rows=100, seconds=1.0, **more))
    under_way = {18 + index: at for index, (at, _) in enumerate(started[-2:])}
    now = idle_until + 9.95
    counts.see("work", levels(now, open_batches=under_way))
    # Each of the two has done 9 batches until it began the one that is under way, 0 and 0.9 s after the other.
    assert snapshot(counts, now).operators["work"].rate == pytest.approx(1800 / (idle_until + 9.45 - 25.2))


@pytest.mark.parametrize(("longest_share", "rate"), [(None, 100.0), (0.8, 125.0)])
@pytest.mark.parametrize("others", [{}, {2: 26.21}, {2: 26.21, 3: 27.21}])
def test_the_first_batch_took_as_long_as_its_share_however_soon_that_of_another_bundle_began(
    others: dict[int, float], longest_share: float | None, rate: float
) -> None:
    """Two bundles began almost together, right after the window. One has done its batch, the other one has not."""
    counts = Counts(10, 20, since=0)
    counts.restart(25.2)
    more = {"batch": 0, "slots": (work("a/1", 100, 0.8),), "longest_share": longest_share}
    counts.add(sample("work", 26.21, rows=100, seconds=1.0, **more))
    counts.see("work", levels(27.3, open_batches={1: 25.211, **others}))
    operator = snapshot(counts, now=27.3).operators["work"]
    assert operator.rate == pytest.approx(rate)
    assert operator.utilisation is not None
    assert operator.utilisation <= 1


@pytest.mark.parametrize("apart", [0.0, 0.01, 0.5, 0.9])
@pytest.mark.parametrize("now", [40.005, 40.4, 40.95])
def test_bundles_that_begin_at_almost_the_same_moment_count_neither_for_a_batch_too_many_nor_too_few(
    apart: float, now: float
) -> None:
    counts = Counts(10, 20, since=0)
    counts.restart(25.2)
    started = sorted((second + shift, slot) for second in range(60) for shift, slot in ((0, "a/1"), (apart, "b/0")))
    for number, (at, slot) in enumerate(started):
        if at + 1 <= now:
            more = {"batch": number, "slots": (work(slot, 100, 1.0),)}
            counts.add(sample("work", at + 1, rows=100, seconds=1.0, **more))
    under_way = {number: at for number, (at, _) in enumerate(started) if at <= now < at + 1}
    counts.see("work", levels(now, open_batches=under_way))
    assert snapshot(counts, now).operators["work"].rate == pytest.approx(200)


def test_a_batch_that_began_before_the_window_stretches_it() -> None:
    counts = Counts(1, 4, since=0)
    for index in range(10):
        counts.add(sample("work", 3.0 * (index + 1), rows=300, seconds=3.0, slots=(work("a/1", 300, 3.0),)))
        counts.see("work", levels(3.0 * (index + 1), batch_since=3.0 * (index + 1)))
    operator = snapshot(counts, now=30).operators["work"]
    assert operator.rate == pytest.approx(100)


def test_after_a_restart_counting_begins_where_the_left_out_batch_ended() -> None:
    counts = Counts(10, 20, since=0)
    # The batch from 8 to 12 is left out, with its time.
    counts.restart(10)
    for index in range(2, 10):
        counts.add(sample("work", 4.0 * (index + 1), rows=400, seconds=4.0))
    counts.see("work", levels(40.0))
    assert snapshot(counts, now=40).operators["work"].rate == pytest.approx(100)


def test_an_idle_operator_has_a_rate_of_zero_that_was_measured() -> None:
    counts = Counts(10, 20, since=0)
    for second in range(60):
        for name, backlog in WAITING.items():
            counts.see(name, levels(second, backlog))
    found = snapshot(counts)
    assert found.complete, found.gaps
    operator = found.operators["work"]
    assert (operator.rate, operator.utilisation, operator.batches) == (0.0, 0.0, 0)
    assert (operator.capacity, operator.batch_duration) == (None, None)


# What is missing


def test_an_operator_that_nobody_heard_of_is_missing() -> None:
    found = snapshot(running(silent="work"))
    assert not found.complete
    assert reasons(found) == {("work", ""): True}
    operator = found.operators["work"]
    assert (operator.rate, operator.capacity, operator.utilisation, operator.backlog.rows) == (None,) * 4
    assert operator.instances == 3
    # Neither is what depends on it made up.
    assert found.streams["work->out"].emit_rate is None
    assert found.operators["out"].input_rate is None
    assert found.slots["b/0"].cpu_utilisation is None
    assert found.machines["b"].utilisation is None
    assert found.slots["a/0"].cpu_utilisation is not None


def test_an_operator_that_fell_silent_is_stale() -> None:
    found = snapshot(running(), now=91)
    assert {gap.subject for gap in found.gaps if gap.grave} == {"rows", "work", "out"}
    assert "31 s" in found.gaps[0].reason
    assert snapshot(running(), now=80).complete


def test_an_operator_that_was_heard_of_now_and_then_is_incomplete() -> None:
    counts = running(silent="work")
    counts.add(sample("work", 59.5))
    counts.see("work", levels(59.9, WAITING["work"]))
    assert reasons(snapshot(counts))[("work", "")]


def test_a_young_window_is_incomplete() -> None:
    counts = running(29)
    assert reasons(snapshot(counts, now=29)) == {("window", ""): True}
    assert snapshot_of(counts.window(29), DEFINITION, PLACEMENT, CLUSTER, least_samples=2).complete
    assert snapshot(running(30), now=30).complete


def test_a_first_batch_that_is_under_way_is_not_a_rate_of_zero() -> None:
    counts = running(silent="work")
    for second in range(60):
        counts.see("work", levels(second, WAITING["work"], batch_since=0.5))
    found = snapshot(counts, now=25)
    assert found.operators["work"].rate is None
    assert reasons(found)[("work", "rate")]


def test_a_batch_that_has_just_begun_does_not_hide_that_the_operator_was_idle() -> None:
    counts = running(silent="work")
    counts.add(sample("work", 3.0, rows=600))
    for second in range(60):
        counts.see("work", levels(second, WAITING["work"], batch_since=58.5 if second == 59 else None))
    found = snapshot(counts)
    assert found.complete, found.gaps
    assert found.operators["work"].rate == pytest.approx(600 / 58.5)


def test_a_batch_that_hangs_is_said() -> None:
    counts = running()
    for second in range(60, 100):
        for name, backlog in WAITING.items():
            counts.see(name, levels(second, backlog, batch_since=60.0 if name == "work" else None))
    found = snapshot(counts, now=100)
    assert reasons(found) == {("work", "rate"): True}


def test_nobody_looked_at_the_backlog() -> None:
    counts = Counts(10, 20, since=0)
    for second in range(60):
        for name in WAITING:
            counts.add(sample(name, second + 0.7))
    found = snapshot(counts)
    assert not found.complete
    assert found.operators["work"].backlog.rows is None
    assert found.gaps_in("backlog_rows")


def test_what_spark_sql_does_not_measure_is_a_gap_that_is_not_grave() -> None:
    counts = running(silent="work")
    for second in range(60):
        unknown = tuple(replace(work(slot, 50), rows=None, cpu=None, bytes_in=None) for slot in ("a/1", "b/0"))
        counts.add(sample("work", second + 0.7, slots=unknown, rows_in=None, traffic=None, overhead=None))
        counts.see("work", levels(second + 0.9, WAITING["work"]))
    found = snapshot(counts)
    assert found.complete
    assert reasons(found) == {("work", "cpu_utilisation"): False, ("work", "traffic"): False}
    operator = found.operators["work"]
    assert operator.capacity == pytest.approx(200)
    assert operator.cpu_utilisation is None
    assert found.slots["b/0"].cpu_utilisation is None
    assert found.slots["b/0"].utilisation is not None
    assert found.streams["rows->work"].rate is None
    assert [gap.subject for gap in found.gaps_in("traffic", "rate")] == ["work"]


def test_work_on_a_slot_that_is_no_longer_placed_is_still_shown() -> None:
    moved = Placement({**PLACEMENT.instances, "work": {B0: 2}})
    operator = snapshot(running(), placement=moved).operators["work"]
    assert operator.slots["a/1"].instances == 0
    assert operator.slots["a/1"].rate == pytest.approx(50)
    assert A1.name not in {slot.name for slot in moved.of("work")}


# Leaving Python


def test_a_snapshot_is_json() -> None:
    counts = running()
    traffic, state = {("a/0", "b/0"): 500}, {3: StateSize(1, 2)}
    counts.add(sample("work", 59.9, 0, 0.1, slots=(work("b/0", 0, 0.0),), traffic=traffic, state=state))
    text = json.loads(json.dumps(snapshot(counts).as_json(), allow_nan=False))
    assert text["complete"] is True
    assert text["topology"] == "small"
    by_name = {one["name"]: one for one in text["operators"]}
    assert list(by_name) == ["rows", "work", "out"]
    assert by_name["work"]["placement"] == {"a/1": 1, "b/0": 2}
    assert by_name["work"]["state"] == {"3": {"rows": 1, "bytes": 2}}
    assert text["machines"][0]["slots"] == ["a/0", "a/1"]
    assert text["traffic"][0]["from"] == "a/0"
    assert text["machine_traffic"] == [{"from": "a", "to": "b", "bytes_per_second": pytest.approx(500 / 60, rel=0.02)}]
