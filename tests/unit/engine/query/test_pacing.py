"""The pacer finds the batch size that takes the target interval, whatever a row costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock import Settings, Topology, sinks, sources
from penstock.engine.query.pacing import FIRST_ROWS, FIXED_SHARE, GROWTH, Pacer, pacer_of


def run(pacer: Pacer, seconds_per_row: float, overhead: float, batches: int = 30) -> float:
    """The time of the last of so many full batches."""
    seconds = 0.0
    for _ in range(batches):
        rows = pacer.bound()
        busy = rows * seconds_per_row
        seconds = busy + overhead
        pacer.observe(rows, seconds, busy)
    return seconds


@pytest.mark.parametrize("seconds_per_row", [1e-6, 1e-4, 1e-3, 0.05])
def test_batches_settle_at_the_interval(seconds_per_row: float) -> None:
    pacer = Pacer(interval=0.5, most=10_000_000)
    assert run(pacer, seconds_per_row, overhead=0.1) == pytest.approx(0.5, rel=0.15)


def test_a_fixed_cost_above_the_interval_still_leaves_room_for_rows() -> None:
    pacer = Pacer(interval=0.5, most=10_000_000)
    assert run(pacer, 1e-4, overhead=2.0) == pytest.approx(2.25, rel=0.1)


def test_the_first_batch_is_small_and_growth_is_bounded() -> None:
    pacer = Pacer(interval=0.5, most=10_000_000)
    assert pacer.bound() == FIRST_ROWS
    pacer.observe(FIRST_ROWS, 0.1, 1e-9)
    assert pacer.bound() == FIRST_ROWS * GROWTH


def test_never_more_than_the_most_and_never_nothing() -> None:
    pacer = Pacer(interval=0.5, most=100)
    assert pacer.bound() == 100
    pacer.observe(100, 60.0, 60.0)
    pacer.observe(1, 60.0, 60.0)
    assert 1 <= pacer.bound() <= 100


def test_a_batch_that_was_not_full_keeps_the_size_however_long_a_call_takes() -> None:
    pacer = Pacer(interval=0.5, most=10_000)
    pacer.observe(2, 0.2, 0.01)  # 5 ms a row, all of it the cost of a call
    assert pacer.bound() == FIRST_ROWS


def test_a_batch_that_was_not_full_but_too_slow_makes_the_next_smaller() -> None:
    pacer = Pacer(interval=0.5, most=10_000)
    pacer.observe(100, 5.1, 5.0)
    assert pacer.bound() == 50


def test_where_spark_does_the_work_the_fastest_batch_stands_for_the_fixed_cost() -> None:
    pacer = Pacer(interval=0.5, most=10_000_000)
    for _ in range(60):
        rows = pacer.bound()
        pacer.observe(rows, 0.4 + rows * 1e-6, None)
    assert 0.4 + pacer.bound() * 1e-6 == pytest.approx(0.8, rel=0.05)


def test_where_spark_does_the_work_batches_that_take_their_time_whatever_their_rows_do_not_shrink() -> None:
    """As with state of a thousand keys, each of which costs the same however many rows it has: the first batch had rows
    of few keys and was fast. Smaller batches would be no faster, and rows would pile up."""
    pacer = Pacer(interval=0.5, most=1_000_000, first=100_000, longest=3.0)
    pacer.observe(100, 1.2, None)
    for _ in range(12):
        rows = pacer.bound()
        pacer.observe(rows, 3.0 + rows * 5e-6, None, waiting=500_000)
    assert pacer.bound() > 400_000


def test_where_spark_does_the_work_batches_of_a_steady_size_stay() -> None:
    pacer = Pacer(interval=0.5, most=10_000_000)
    sizes = []
    for _ in range(60):
        sizes.append(pacer.bound())
        pacer.observe(sizes[-1], 0.4 + sizes[-1] * 1e-6, None)
    assert max(sizes[30:]) < 1.1 * min(sizes[30:])


@pytest.mark.parametrize(("before", "after"), [(1e-5, 4e-5), (1e-5, 1e-4), (1e-6, 3e-5)])
def test_where_spark_does_the_work_rows_that_have_become_dear_make_batches_small_again(
    before: float, after: float
) -> None:
    pacer = Pacer(interval=0.5, most=1_000_000, first=100_000, longest=3.0)
    seconds = 0.0
    for per_row, batches in ((before, 20), (after, 8)):
        for _ in range(batches):
            rows = pacer.bound()
            seconds = 0.4 + rows * per_row
            pacer.observe(rows, seconds, None, waiting=2_000_000)
    assert seconds < 4.0


def test_where_spark_does_the_work_growth_is_slow_while_all_that_is_known_is_that_a_batch_takes_long() -> None:
    pacer = Pacer(interval=0.5, most=1_000_000, first=100_000, longest=3.0)
    pacer.observe(100_000, 10.4, None, waiting=2_000_000)
    assert pacer.bound() <= 150_000
    pacer.observe(pacer.bound(), 0.4 + pacer.bound() * 1e-4, None, waiting=2_000_000)
    assert pacer.bound() < 80_000


def test_rows_are_worth_a_batch_if_they_are_many_or_much_work() -> None:
    pacer = Pacer(interval=0.5, most=1_000_000, first=100_000)
    assert pacer.is_worth_it(10_000) and not pacer.is_worth_it(9_000), "nothing is known yet"
    for rows in (100_000, 400_000):
        pacer.observe(rows, 0.4 + rows * 1e-6, None, waiting=rows)
    assert pacer.overhead == pytest.approx(0.4)
    assert pacer.bound() > 410_000
    assert pacer.is_worth_it(41_000) and not pacer.is_worth_it(39_000), "a tenth of the fixed cost"


def test_a_batch_without_rows_teaches_nothing() -> None:
    pacer = Pacer(interval=0.5, most=1000)
    pacer.observe(0, 9.0, 0.0)
    assert pacer.bound() == FIRST_ROWS


def pressed(pacer: Pacer, batches: int, waiting: bool = True) -> float:
    seconds = 0.0
    for _ in range(batches):
        rows = pacer.bound()
        seconds = rows * 1e-5 + 0.1
        pacer.observe(rows, seconds, seconds - 0.1, rows if waiting else 0)
    return seconds


def test_under_more_load_than_it_bears_batches_grow_until_their_fixed_cost_is_small() -> None:
    pacer = Pacer(interval=0.5, most=10_000_000, longest=10.0)
    assert pressed(pacer, 30) == pytest.approx(0.1 / FIXED_SHARE, rel=0.1)
    assert pressed(pacer, 30, waiting=False) == pytest.approx(0.5, rel=0.15), "and back when nothing waits"


def test_batches_grow_no_longer_than_allowed() -> None:
    assert pressed(Pacer(interval=0.5, most=10_000_000, longest=1.0), 30) == pytest.approx(1.0, rel=0.1)
    assert pressed(Pacer(interval=0.5, most=10_000_000), 30) == pytest.approx(0.5, rel=0.1)
    assert pressed(Pacer(interval=0.5, most=10_000_000, longest=0.1), 30) == pytest.approx(0.5, rel=0.1)


def batches_of(
    pacer: Pacer, factors: Sequence[float], rate: int, waiting: float = 0.0, fixed: float = 0.4, per_row: float = 1e-6
) -> float:
    """Batches of Spark SQL that take so many times as long as they should, at a rate of rows; how many wait then."""
    for factor in factors:
        waiting = max(waiting, 0.1 * rate)
        rows = int(min(pacer.bound(), waiting))
        seconds = (fixed + rows * per_row) * factor
        waiting += rate * seconds - rows
        pacer.observe(rows, seconds, None, int(waiting))
    return waiting


def test_one_slow_batch_of_spark_sql_at_most_halves_the_next() -> None:
    pacer = Pacer(interval=0.5, most=1_000_000, first=100_000, longest=3.0)
    waiting = batches_of(pacer, [1.0] * 20, rate=20_000)
    before = pacer.bound()
    batches_of(pacer, [4.0], 20_000, waiting)
    assert pacer.bound() >= before / 2


@pytest.mark.parametrize("apart", [2, 3, 4, 5, 6])
def test_two_slow_batches_of_spark_sql_are_forgotten(apart: int) -> None:
    pacer = Pacer(interval=0.5, most=1_000_000, first=100_000, longest=3.0)
    waiting = batches_of(pacer, [1.0] * 20 + [2.5] + [1.0] * (apart - 1) + [2.5], rate=214_000)
    assert batches_of(pacer, [1.0] * 50, 214_000, waiting) < 214_000


def test_how_operators_are_paced_at_the_default_settings(tmp_path: Path) -> None:
    topology = Topology("paced")
    rows = topology.source("rows", sources.rate(10, sources.sentences()))
    files = topology.source("files", sources.files(tmp_path, format="json", schema="value string"))
    topology.sink("copies", sinks.noop(), inputs=[files])
    words = topology.map("words", lambda batch: batch, inputs=[rows], schema="sentence string")
    frames = topology.map_dataframe("frames", lambda frame: frame, inputs=[words], schema="sentence string")
    topology.sink("out", sinks.noop(), inputs=[frames])
    operators = {one.name: one for one in topology.definition().operators}

    def paced(name: str) -> tuple[float, int, int, float | None]:
        pacer = pacer_of(operators[name], Settings())
        return pacer.interval, pacer.most, pacer.bound(), pacer.longest

    assert paced("rows") == (0.5, 1_000_000, 500, 3.0)
    assert paced("files") == (0.5, 134_217_728, 1_048_576, 3.0), "a source that counts bytes"
    assert paced("words") == (0.5, 1_000_000, 500, 3.0)
    assert paced("frames") == (0.5, 1_000_000, 100_000, 3.0)
