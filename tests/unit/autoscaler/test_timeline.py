"""The throughput over time, from batches that come out now and then."""

from __future__ import annotations

import pytest

from penstock.autoscaler.timeline import TOGETHER, Timeline, rates_of


def test_batches_at_their_usual_pace_are_an_even_rate() -> None:
    batches = [(float(second), 200) for second in range(2, 42, 2)]
    assert rates_of(batches, 10, 30, 1.0) == pytest.approx([100.0] * 20)


def test_a_batch_that_is_late_leaves_a_hole() -> None:
    batches = [(float(second), 100) for second in (*range(1, 11), *range(15, 26))]
    rates = rates_of(batches, 8, 18, 1.0)
    assert rates == pytest.approx([100, 100, 0, 0, 0, 0, 100, 100, 100, 100])


def test_sinks_are_added_up_by_their_weights() -> None:
    timeline = Timeline({"one": 1.0, "two": 0.5}, 600)
    for second in range(1, 21):
        timeline.add("one", float(second), 10)
        timeline.add("two", float(second), 40)
        timeline.add("no sink", float(second), 1000)
    points = timeline.points(5, 10)
    assert [one.at for one in points] == [6, 7, 8, 9, 10]
    assert [one.throughput for one in points] == pytest.approx([30.0] * 5)


def test_a_batch_that_is_under_way_is_no_loss_but_one_that_does_not_come_is() -> None:
    timeline = Timeline({"slow": 1.0, "quick": 1.0}, 600)
    for second in range(1, 21):
        timeline.add("quick", float(second), 10)
    for second in range(2, 19, 4):
        timeline.add("slow", float(second), 40)
    # The next batch of the slow one is not due before 22: nothing is known of what comes after 18.
    points = timeline.points(10, 20.5)
    assert [one.at for one in points] == [11, 12, 13, 14, 15, 16, 17, 18]
    assert [one.throughput for one in points] == pytest.approx([20.0] * 8)
    # Nor at 26; after that it counts as missing, and so does the quick one.
    late = timeline.points(10, 26.5)
    assert late[-1].at == 26
    assert [one.throughput for one in late[8:]] == pytest.approx([10.0] * 2 + [0.0] * 6)


def test_no_batch_yet() -> None:
    assert [one.throughput for one in Timeline({"one": 1.0}, 600).points(0, 3)] == [0.0] * 3
    assert rates_of([(1.5, 7)], 0, 3, 1.0) == pytest.approx([3.5, 3.5, 0.0])


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    timeline = Timeline({"one": 1.0}, 60)
    for index in range(50 * 600):  # ten minutes of a bundle that stands
        timeline.add("one", index / 50, 2)
    assert len(timeline._published["one"]) <= 1 + 60 / TOGETHER * 1.1
    points = timeline.points(400, 600)
    assert points[0].at == pytest.approx(541, abs=1), "of the time before, nothing is known: it is not 0"
    assert [one.throughput for one in points] == pytest.approx([100.0] * len(points), rel=0.02)


def test_batches_close_together_count_as_one_and_a_gap_stays_a_gap() -> None:
    timeline = Timeline({"one": 1.0}, 600)
    for index in range(20 * 30):
        if not 10 <= index / 20 < 15:
            timeline.add("one", index / 20, 5)
    rates = [one.throughput for one in timeline.points(5, 20)]
    assert rates[:4] == pytest.approx([100.0] * 4, rel=0.05)
    assert rates[6:9] == [0.0] * 3
    assert rates[11:] == pytest.approx([100.0] * 4, rel=0.05)
