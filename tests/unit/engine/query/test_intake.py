"""The gate in front of an operator: when it lets rows in, how many, and when it holds back."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock.channels.catalog import Catalog
from penstock.channels.log import Bound, Channels
from penstock.channels.segments import SegmentStore
from penstock.engine.query.intake import ENOUGH_EMPTY_POLLS, BatchProgress, Intake
from penstock.engine.query.pacing import Pacer


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeChannels:
    """Only what the intake asks: time passes while it waits."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.full_channels: set[str] = set()
        self.waits: list[float] = []
        self.lock = threading.RLock()

    def full(self, channel: str) -> bool:
        return channel in self.full_channels

    def pause(self, timeout: float) -> None:
        self.waits.append(timeout)
        self.clock.now += timeout

    def notify(self) -> None:
        pass


class Rows:
    def __init__(self, rows: int, due: float | None = None) -> None:
        self.rows = rows
        self.due = due

    def available(self) -> int:
        return self.rows

    def due_in(self) -> float | None:
        return self.due

    def look(self) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def channels(clock: Clock) -> FakeChannels:
    return FakeChannels(clock)


def intake_of(channels: FakeChannels, *supplies: Rows, linger: float = 0.1, **options: bool) -> Intake:
    def fail(error: Exception) -> None:
        raise error

    intake = Intake(channels, ["out"], Pacer(0.5, 1000), linger, fail, clock=channels.clock, **options)  # type: ignore[arg-type]
    for supply in supplies:
        intake.add(supply)
    intake.open()
    return intake


def test_a_full_batch_starts_at_once(channels: FakeChannels) -> None:
    supply = Rows(5000)
    intake = intake_of(channels, supply)
    intake.progress.last_start = channels.clock.now
    assert intake.admits(supply) == intake.pacer.bound()
    assert channels.waits == []


def test_few_rows_wait_for_the_linger(channels: FakeChannels) -> None:
    supply = Rows(3)
    intake = intake_of(channels, supply)
    intake.progress.last_start = channels.clock.now
    assert intake.admits(supply) == 3
    assert sum(channels.waits) == pytest.approx(0.1)


def test_an_operator_behind_a_full_channel_is_held_back(channels: FakeChannels) -> None:
    supply = Rows(5000)
    intake = intake_of(channels, supply)
    channels.full_channels.add("out")
    assert intake.admits(supply) == 0
    assert intake.throttled
    channels.full_channels.clear()
    assert intake.admits(supply) > 0
    assert not intake.throttled


def test_spill_ignores_the_bound(channels: FakeChannels) -> None:
    supply = Rows(5000)
    intake = intake_of(channels, supply, throttle=False)
    channels.full_channels.add("out")
    assert intake.admits(supply) > 0


def test_nothing_gets_in_while_it_is_closed(channels: FakeChannels) -> None:
    supply = Rows(5000)
    intake = intake_of(channels, supply)
    intake.close()
    assert intake.admits(supply) == 0


def test_nothing_gets_in_while_it_is_paused_and_everything_after(channels: FakeChannels) -> None:
    supply = Rows(5000)
    intake = intake_of(channels, supply)
    intake.pause()
    assert intake.admits(supply) == 0
    assert not intake.in_batch
    intake.pause(False)
    assert intake.admits(supply) > 0


def test_several_supplies_share_a_batch_by_what_waits(channels: FakeChannels) -> None:
    many, few = Rows(3000), Rows(1000)
    intake = intake_of(channels, many, few)
    admitted = [intake.admits(many), intake.admits(few)]
    assert admitted[0] == pytest.approx(3 * admitted[1], rel=0.05)
    assert sum(admitted) <= intake.pacer.bound() + 1


def test_whichever_supply_is_asked_first_the_others_get_their_share(channels: FakeChannels) -> None:
    many, few = Rows(3000), Rows(1000)
    intake = intake_of(channels, many, few)
    for _ in range(2):
        admitted = {"few": intake.admits(few)}
        admitted["many"] = intake.admits(many)
        assert admitted["many"] == pytest.approx(3 * admitted["few"], rel=0.05)
        intake.ended(sum(admitted.values()), busy=0.1)
    assert channels.waits == []


def test_a_batch_that_was_given_up_lets_nothing_more_in(channels: FakeChannels) -> None:
    supply = Rows(3000)
    intake = intake_of(channels, supply)
    assert intake.admits(supply)
    assert intake.admits(supply) == 0


def test_a_stateful_operator_is_answered_at_once_after_a_batch(channels: FakeChannels) -> None:
    supply = Rows(0)
    intake = intake_of(channels, supply, stateful=True)
    assert intake.admits(supply) == 0
    assert channels.waits == []
    assert not intake.idle
    intake.admits(supply)
    assert channels.waits
    assert intake.idle


@pytest.mark.parametrize("linger", [0.1, 10.0])
def test_rows_that_wait_when_a_stateful_batch_ends_make_the_next_one(channels: FakeChannels, linger: float) -> None:
    """Told that there is nothing, Spark would run a batch without rows for the watermark, and the rows would wait for
    it. The batch that reads them moves the watermark as well."""
    supply = Rows(500)
    intake = intake_of(channels, supply, stateful=True, linger=linger)
    assert intake.admits(supply) == 500
    began = channels.clock.now
    channels.clock.now += 0.5
    intake.ended(500, busy=None)
    supply.rows = 3
    assert intake.admits(supply) == 3
    assert channels.clock.now - began == pytest.approx(max(linger, 2 * 0.5))


def test_the_watermark_does_not_wait_for_a_batch_that_is_far_away(channels: FakeChannels) -> None:
    supply = Rows(3)
    intake = intake_of(channels, supply, stateful=True, linger=60.0)
    intake.progress.last_start = channels.clock.now
    assert intake.admits(supply) == 0
    assert channels.waits == []


@pytest.mark.parametrize("wake", ["close", "nothing more"])
def test_the_wait_for_the_next_batch_ends_when_something_happens(wake: str) -> None:
    channels, supply = WaitingChannels(), Rows(3)
    intake = Intake(channels, ["out"], Pacer(0.5, 1000), 10.0, lambda error: None, stateful=True)  # type: ignore[arg-type]
    intake.add(supply)
    intake.open()
    intake.progress.last_start = began = time.monotonic()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(intake.admits(supply)), daemon=True)
    thread.start()
    while not channels.waiting and time.monotonic() < began + 4:
        time.sleep(0.001)
    (intake.close if wake == "close" else intake.expect_nothing_more)()
    thread.join(4)
    assert answers == [0 if wake == "close" else 3]


@pytest.mark.parametrize("held", ["throttled", "paused", "at the end", "closed"])
def test_the_watermark_does_not_wait_for_rows_that_are_not_let_in(channels: FakeChannels, held: str) -> None:
    supply = Rows(3)
    intake = intake_of(channels, supply, stateful=True, linger=10.0)
    intake.progress.last_start = channels.clock.now
    if held == "throttled":
        channels.full_channels.add("out")
    elif held == "paused":
        intake.pause()
    elif held == "closed":
        intake.close()
    else:
        intake.expect_nothing_more()
    assert intake.admits(supply) == (3 if held == "at the end" else 0)
    assert channels.waits == []


def test_the_time_of_a_batch_teaches_the_pacer(channels: FakeChannels) -> None:
    supply = Rows(500)
    intake = intake_of(channels, supply)
    assert intake.admits(supply) == 500
    assert intake.in_batch
    channels.clock.now += 1.0
    assert intake.ended(500, busy=0.8) == pytest.approx(1.0)
    assert not intake.in_batch
    assert intake.pacer.bound() < 500
    assert intake.pacer.overhead == pytest.approx(0.2)


def test_opening_wakes_a_waiting_query(tmp_path: Path) -> None:
    """With the real condition variable: a query asked before the gate was open gets its rows once it is."""
    catalog = Catalog.open(f"sqlite:///{tmp_path}/catalog.db", "t")
    channels = Channels(catalog, SegmentStore(str(tmp_path / "segments")), {}, {}, Bound(1000, 1 << 30))
    intake = Intake(channels.seen_by("work"), [], Pacer(0.5, 1000), 0.0, lambda error: None)
    supply = Rows(10)
    intake.add(supply)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(intake.admits(supply)))
    thread.start()
    intake.open()
    thread.join(5)
    catalog.close()
    assert got == [10]


def test_a_batch_that_had_to_wait_for_room_says_so(channels: FakeChannels) -> None:
    supply = Rows(5000)
    intake = intake_of(channels, supply)
    channels.full_channels = {"out"}
    assert intake.admits(supply) == 0
    channels.full_channels = set()
    assert intake.admits(supply)
    assert intake.held_back
    assert not intake.throttled, "there is room now"
    intake.ended(500, busy=0.1)
    assert intake.admits(supply)
    assert not intake.held_back


def test_at_the_end_nobody_waits_until_spark_knows_and_then_everybody(channels: FakeChannels) -> None:
    supply = Rows(0)
    intake = intake_of(channels, supply)
    intake.expect_nothing_more()
    for _ in range(2):
        assert intake.admits(supply) == 0
    assert channels.waits == []
    assert intake.idle
    # Spark asks on as long as the others run: not hundreds of times a second.
    intake.admits(supply)
    assert sum(channels.waits) == pytest.approx(0.5)


def test_an_operator_with_nothing_to_do_answers_spark_every_ten_seconds_and_not_twice_a_second(
    channels: FakeChannels,
) -> None:
    supply = Rows(0)
    intake = intake_of(channels, supply)
    answers, began = 0, channels.clock.now
    while channels.clock.now < began + 600:
        intake.admits(supply)
        answers += 1
    # Whoever waits for it to be idle still hears that soon: after the first two answers.
    assert answers <= 2 + 60
    assert intake.idle


def test_one_that_spark_must_ask_for_its_timers_is_asked_as_before(channels: FakeChannels) -> None:
    supply = Rows(0)
    intake = intake_of(channels, supply, stateful=True)
    for _ in range(10):
        intake.admits(supply)
    assert sum(channels.waits) <= 10 * 0.5


@pytest.mark.parametrize("wake", ["close", "rows", "pause and resume"])
def test_a_long_wait_ends_when_something_happens(tmp_path: Path, wake: str) -> None:
    """With real channels: a query that is to stop must not hang, and rows must not wait for the next question."""
    catalog = Catalog.open(f"sqlite:///{tmp_path}/catalog.db", "t")
    channels = Channels(catalog, SegmentStore(str(tmp_path / "segments")), {}, {}, Bound(1000, 1 << 30))
    supply = Rows(0)
    intake = Intake(channels.seen_by("work"), [], Pacer(0.5, 1000), 0.0, lambda error: None)
    intake.add(supply)
    intake.open()
    intake.progress.empty_polls = 5
    got: list[int] = []
    began = time.monotonic()
    thread = threading.Thread(target=lambda: got.append(intake.admits(supply)), daemon=True)
    thread.start()
    if wake == "close":
        intake.close()
    elif wake == "rows":
        supply.rows = 10
        channels.notify("work")
    else:
        intake.pause()
        supply.rows = 10
        intake.pause(False)
    thread.join(30)
    catalog.close()
    assert got == [0 if wake == "close" else 10]
    assert time.monotonic() - began < 8


def test_a_batch_that_nobody_was_asked_about_is_a_batch_too(channels: FakeChannels) -> None:
    """Spark runs batches without rows for timers and watermarks: a query is not stopped in the middle of one."""
    supply = Rows(0)
    intake = intake_of(channels, supply, stateful=True)
    for _ in range(2):
        assert intake.admits(supply) == 0
    assert intake.idle
    intake.runs()
    assert intake.in_batch
    assert not intake.idle
    assert intake.ended(0, busy=None) == 0.0
    assert intake.idle, "such a batch is no reason to wait for two more empty answers"


class WaitingChannels:
    """What the intake asks, with threads that really wait."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self.is_full = False
        self.waiting = 0

    def full(self, channel: str) -> bool:
        return self.is_full

    def pause(self, timeout: float) -> None:
        with self.lock:
            self.waiting += 1
            self._changed.wait(timeout)

    def notify(self) -> None:
        with self.lock:
            self._changed.notify_all()


@pytest.mark.parametrize("was_full", [True, False])
def test_room_or_rows_that_come_before_a_batch_may_begin_are_not_waited_for_again(was_full: bool) -> None:
    """The batch before has begun 2.5 s ago, and the next one may begin 3 s after it."""
    channels, supply = WaitingChannels(), Rows(5 if was_full else 0)
    channels.is_full = was_full
    intake = Intake(channels, ["out"], Pacer(0.5, 1000), 0.1, lambda error: None)  # type: ignore[arg-type]
    intake.add(supply)
    intake.open()
    began = time.monotonic()
    intake.progress = BatchProgress(last_start=began - 2.5, last_overhead=1.5, empty_polls=ENOUGH_EMPTY_POLLS)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(intake.admits(supply)), daemon=True)
    thread.start()
    while not channels.waiting and time.monotonic() < began + 4:
        time.sleep(0.001)
    supply.rows, channels.is_full = 5, False
    channels.notify()
    thread.join(4)
    assert answers == [5]
    assert time.monotonic() > began + 0.5
