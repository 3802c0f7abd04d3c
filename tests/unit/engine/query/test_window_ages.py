"""How old results are that waited for a watermark: event times are seconds, and rows are born 1,000 s after them."""

from __future__ import annotations

import pytest

from penstock.engine.query.window_ages import MOST_NOTED, WindowAges

BORN = 1000.0
DELAY = 3.0


class Stream:
    """Batches of one second each, as Spark would run them on windows of ten seconds; asks how old results are."""

    def __init__(self, window: float = 10.0) -> None:
        self.ages = WindowAges()
        self.window = window
        self.watermark = 0.0
        self.newest = 0.0
        self.let_out: list[tuple[float, float, float]] = []

    def batch(self, start: float, stop: float) -> None:
        before = self.watermark
        self.watermark = max(self.newest - DELAY, before)
        closes = self.watermark // self.window > before // self.window
        if closes:
            born = self.ages.released()
            assert born is not None
            self.let_out.append((self.watermark, *born))
            self.ages.let_out()
        self.ages.note(self.watermark, (start, stop), (BORN + start, BORN + stop))
        self.newest = max(self.newest, stop)


def test_results_of_windows_that_follow_each_other_count_from_the_rows_of_the_window() -> None:
    stream = Stream()
    for second in range(45):
        stream.batch(second, second + 1)
    assert [watermark for watermark, _, _ in stream.let_out] == [10.0, 20.0, 30.0, 40.0]
    # The first time nobody knows yet how far the watermark stays behind: rows that came since are among them.
    for (watermark, born_from, born_to), slack in zip(stream.let_out, (DELAY, 1, 1, 1), strict=True):
        assert born_from == pytest.approx(BORN + watermark - 10, abs=1)
        assert born_to == pytest.approx(BORN + watermark, abs=slack)


def test_nothing_is_let_go_while_the_watermark_stands() -> None:
    ages = WindowAges()
    assert ages.released() is None
    ages.note(0.0, (0, 5), (BORN, BORN + 5))
    ages.let_out()
    ages.note(2.0, None, None)
    assert ages.released() is None


def test_a_batch_without_rows_moves_the_watermark_only() -> None:
    ages = WindowAges()
    ages.note(0.0, (0, 10), (BORN, BORN + 10))
    ages.note(7.0, None, None)
    assert ages.released() == (BORN, BORN + 7)


def test_what_is_remembered_stays_bounded() -> None:
    ages = WindowAges()
    for second in range(5 * MOST_NOTED):
        ages.note(0.0, (second, second + 1), (BORN + second, BORN + second + 1))
    assert len(ages._noted) <= MOST_NOTED
    assert ages.released() == (BORN, BORN + 5 * MOST_NOTED)
