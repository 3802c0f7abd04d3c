"""However samples come: counts are conserved, merging is adding, no rate is negative, and what is missing is said."""

from __future__ import annotations

import json
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from penstock import Topology, sinks, sources
from penstock.cluster.model import Cluster
from penstock.monitor.counts import Counts
from penstock.monitor.evaluation import snapshot_of
from penstock.monitor.latency import RELATIVE_ERROR, SHORTEST, LatencySketch, merged
from penstock.monitor.sample import Levels, Sample, SlotWork, Waiting
from penstock.monitor.totals import OperatorTotals, merge_operators
from penstock.strategies.mapping.round_robin import round_robin

CLUSTER = Cluster.of(["a", "b"], 2)
SLOTS = [slot.name for slot in CLUSTER.slots]
NAMES = ["rows", "out"]
SPAN = 120.0


def topology():
    declared = Topology("t")
    rows = declared.source("rows", sources.rate(1, sources.numbers()), instances=2)
    declared.sink("out", sinks.noop(), inputs=[rows], instances=2)
    return declared.definition()


DEFINITION = topology()
PLACEMENT = round_robin(DEFINITION, CLUSTER)
counts = st.integers(0, 10**6)
# Strategies are made once, here: made anew for each sample they cost more time than everything that is tested. Every
# draw costs too: so a figure that may be missing is one draw, and lists are short.
maybe = st.integers(-1, 10**6).map(lambda figure: None if figure < 0 else figure)
share = st.sampled_from([None, 0.0, 0.1, 0.5, 1.0])
work = st.tuples(maybe, counts, maybe, share, share, maybe)
works = st.dictionaries(st.sampled_from(SLOTS), work, max_size=3)
figures = st.tuples(st.floats(0, SPAN), st.floats(0, 20), counts, st.booleans(), counts, share)
traffic = st.none() | st.dictionaries(st.tuples(*[st.sampled_from(SLOTS)] * 2), counts, max_size=3)


def sample(name: str, figures: tuple, works: dict[str, tuple], traffic: dict | None) -> Sample:
    finished, seconds, rows, knows_input, behind, waiting = figures
    slots = tuple(
        SlotWork(
            slot,
            1,
            rows=executed,
            rows_out={"out": emitted},
            bytes_in=size,
            busy=None if busy is None else busy * seconds,
            cpu=None if cpu is None else cpu * seconds,
            memory=memory,
        )
        for slot, (executed, emitted, size, busy, cpu, memory) in works.items()
    )
    latency = LatencySketch()
    latency.add_range(0.1, 0.2, rows)
    return Sample(
        name,
        round(finished * 1000),
        finished - seconds,
        finished,
        rows,
        rows_in={"rows->out": rows} if knows_input else None,
        rows_out={"out": rows},
        slots=slots,
        traffic=traffic,
        waiting=waiting,
        latency=latency if name == "out" else None,
        levels=Levels(finished, {"rows->out": Waiting(behind, 0)} if name == "out" else {}),
    )


samples = st.builds(sample, st.sampled_from(NAMES), figures, works, traffic)
many = st.lists(samples, max_size=6)
#: Where several lists are generated.
few = st.lists(samples, max_size=3)


def added(of: list[Sample]) -> dict[str, OperatorTotals]:
    total: dict[str, OperatorTotals] = {}
    for sample in of:
        total.setdefault(sample.operator, OperatorTotals()).add(sample)
    return total


def shown(totals: dict[str, OperatorTotals], last_batch: bool = True) -> dict[str, tuple]:
    """What does not depend on how often levels were looked at, and no float that depends on the order of adding."""
    return {
        name: (
            one.batches,
            one.rows,
            one.rows_in,
            one.rows_out,
            one.traffic,
            one.waiting is None,
            json.loads(one.latency.as_text())[1:] if one.latency is not None else None,
            one.first_starts,
            one.last_started,
            one.last_finished,
            one.last_batch if last_batch else None,
            {slot: (it.batches, it.rows, it.rows_out, it.bytes_in, it.memory) for slot, it in one.slots.items()},
        )
        for name, one in totals.items()
    }


@given(many, st.integers(0, 6))
def test_totals_of_two_parts_are_the_totals_of_all(of: list[Sample], cut: int) -> None:
    assert shown(merge_operators(added(of[:cut]), added(of[cut:]))) == shown(added(of))


@given(few, few, few)
def test_merging_is_associative(one: list[Sample], two: list[Sample], three: list[Sample]) -> None:
    a, b, c = added(one), added(two), added(three)
    left = merge_operators(merge_operators(a, b), c)
    assert shown(left) == shown(merge_operators(a, merge_operators(b, c))) == shown(merge_operators(a, b, c))


@given(few, few, few)
def test_merging_is_associative_also_where_only_the_first_starts_are_kept(
    one: list[Sample], two: list[Sample], three: list[Sample]
) -> None:
    with patch("penstock.monitor.totals.FIRST_STARTS", 2):
        test_merging_is_associative.hypothesis.inner_test(one, two, three)  # type: ignore[attr-defined]
        found = merge_operators(added(one), added(two), added(three))
    for name, totals in found.items():
        started = [sample.started for sample in (*one, *two, *three) if sample.operator == name]
        assert totals.first_starts == sorted(started)[:2]


@given(many, st.sampled_from([0.5, 1.0, 7.0, 10.0]), st.integers(1, 6))
def test_intervals_hold_every_row_once_however_often_they_are_closed(
    of: list[Sample], seconds: float, closings: int
) -> None:
    counts, closed = Counts(seconds, 300, since=0, unwritten=300), []
    for index, sample in enumerate(of):
        counts.add(sample)
        if index % closings == 0:
            closed += counts.unwritten(sample.finished)
    closed += counts.unwritten(SPAN + seconds, last=True)
    total = merge_operators(*(one.operators for one in closed))
    expected = added(of)
    assert {name: (one.rows, one.batches) for name, one in total.items()} == {
        name: (one.rows, one.batches) for name, one in expected.items()
    }
    assert all(one.start < one.stop for one in closed)


@given(many, st.integers(1, 12), st.sampled_from([1.0, 5.0, 10.0]), st.integers(1, 6))
def test_a_sliding_window_is_the_sum_of_its_intervals(
    of: list[Sample], length: int, interval: float, every: int
) -> None:
    """Read often or seldom, it holds what finished since it begins."""
    of = sorted(of, key=lambda sample: sample.finished)
    counts = Counts(interval, length, since=-100.0)
    for index, sample in enumerate(of):
        counts.add(sample)
        if index % every == 0:
            counts.window(sample.finished)
    totals = counts.window(SPAN)
    inside = [sample for sample in of if sample.finished >= totals.since]
    assert shown(dict(totals.operators)) == shown(added(inside))


@given(many, st.lists(st.sampled_from(["restart", "window", "unwritten", "nothing"]), min_size=6, max_size=6))
def test_the_run_and_the_store_have_every_row_once_whoever_reads_and_restarts(of: list[Sample], between: list[str]):
    of = sorted(of, key=lambda sample: sample.finished)
    counts, written = Counts(10, 3, since=0, unwritten=100), []
    for sample, what in zip(of, between, strict=False):
        counts.add(sample)
        if what == "restart":
            counts.restart(sample.finished)
        elif what == "window":
            counts.window(sample.finished)
        elif what == "unwritten":
            written += counts.unwritten(sample.finished)
    # An interval has what was counted before the window began anew in front of the rest, though batches come in any
    # order here. Which of them was the last one is asked of the window only, which has the rest.
    expected = shown(added(of), last_batch=False)
    before = {name: (counts.of_run(name).rows, counts.of_run(name).batches) for name in expected}
    written += counts.unwritten(SPAN + 10, last=True)
    assert shown(merge_operators(*(one.operators for one in written)), last_batch=False) == expected
    after = {name: (counts.of_run(name).rows, counts.of_run(name).batches) for name in expected}
    assert before == after == {name: (one.rows, one.batches) for name, one in added(of).items()}


@given(many, st.lists(st.tuples(st.sampled_from(NAMES), *[st.floats(0, SPAN)] * 2), max_size=20), st.data())
def test_rates_are_never_negative(of, looks, data) -> None:
    counts = Counts(10, 6, since=0)
    restart = data.draw(st.one_of(st.none(), st.floats(0, SPAN)))
    for sample in of:
        counts.add(sample)
    if restart is not None:
        counts.restart(restart)
        for sample in of:
            counts.add(sample)
    for name, at, batch_since in looks:
        counts.see(name, Levels(at, batch_since=batch_since if batch_since <= at else None))
    found = snapshot_of(counts.window(SPAN), DEFINITION, PLACEMENT, CLUSTER)
    json.dumps(found.as_json(), allow_nan=False)
    shown = [
        (one.rate, one.emit_rate, one.input_rate, one.capacity, one.utilisation) for one in found.operators.values()
    ]
    shown += [(one.utilisation, one.cpu_utilisation) for one in found.slots.values()]
    shown += [(one.rate, one.emit_rate) for one in found.streams.values()]
    assert all(figure is None or figure >= 0 for one in shown for figure in one)
    assert all(rate >= 0 for rate in found.traffic.values())


turns = st.tuples(st.floats(0, 5), st.floats(0.01, 20), st.floats(0, 1))


@given(st.lists(turns, min_size=1, max_size=30), st.integers(1, 20), st.booleans(), st.floats(0, 5), st.floats(0, 100))
def test_nobody_is_busier_than_always(of, length: int, in_batch: bool, pause: float, restart: float) -> None:
    """One batch after the other, in any rhythm: whatever the window cuts off, busy time is within counted time."""
    counts, now = Counts(1, length, since=0), 0.0
    counts.restart(restart)
    slots = [slot.name for slot in PLACEMENT.of("out")]
    for index, (wait, seconds, busy) in enumerate(of):
        started = now + wait
        now = started + seconds
        works = tuple(SlotWork(slot, 1, rows=1, busy=busy * seconds, cpu=busy * seconds) for slot in slots)
        counts.add(Sample("out", index, started, now, 1, {}, {}, works, traffic={}))
    counts.see("out", Levels(now + pause, batch_since=now + pause / 2 if in_batch else None))
    shown = snapshot_of(counts.window(now + pause), DEFINITION, PLACEMENT, CLUSTER).operators["out"]
    assert shown.utilisation is None or shown.utilisation <= 1 + 1e-9
    assert all(one.utilisation is None or one.utilisation <= 1 + 1e-9 for one in shown.slots.values())


@given(many, st.sampled_from(NAMES))
def test_without_news_of_an_operator_a_snapshot_is_incomplete(of: list[Sample], silent: str) -> None:
    counts = Counts(10, 6, since=0)
    for sample in of:
        if sample.operator != silent:
            counts.add(sample)
    found = snapshot_of(counts.window(SPAN), DEFINITION, PLACEMENT, CLUSTER)
    assert not found.complete
    assert found.operators[silent].rate is None
    assert any(gap.subject == silent and gap.grave for gap in found.gaps)


ages = st.lists(st.floats(SHORTEST, 1000), min_size=1, max_size=50)


@given(ages, st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_quantiles_are_within_their_error_also_after_they_were_written_down(of: list[float], share: float) -> None:
    sketch = LatencySketch()
    for age in of:
        sketch.add(age)
    exact = sorted(of)[int(share * (len(of) - 1))]
    for one in (sketch, LatencySketch.parse(sketch.as_text())):
        value = one.quantile(share)
        assert value is not None
        assert abs(value - exact) <= exact * (RELATIVE_ERROR + 1e-9)


@given(st.lists(ages, max_size=6))
def test_sketches_can_be_merged_in_any_order(parts: list[list[float]]) -> None:
    sketches = []
    for part in parts:
        sketch = LatencySketch()
        for age in part:
            sketch.add(age)
        sketches.append(sketch)
    forth, back = merged(sketches), merged(LatencySketch.parse(one.as_text()) for one in reversed(sketches))
    assert forth.rows == back.rows == sum(map(len, parts))
    assert all(forth.quantile(share) == back.quantile(share) for share in (0.0, 0.5, 0.99))
