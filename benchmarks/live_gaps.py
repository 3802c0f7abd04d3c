"""What an action did to a stream's output, from the times at which batches came out. No Spark here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

#: Throughput at a moment is that over so many median gaps before it: over less, it shows the batches and not the rate.
WINDOW_GAPS = 5
SHARE = 0.9
STEP = 0.1
#: A median of fewer says little.
LEAST_GAPS = 5
#: A stream that is silent for so long has failed.
SILENCE = 180.0
CALM = 120.0
#: Outputs so many seconds before the calm can still count for its throughput.
EARLIER = 60.0
LOAD_METRIC = "rocksdbLoadLatencyMs"


@dataclass(frozen=True)
class Output:
    """A batch that came out: when, and how many rows."""

    at: float
    rows: int


@dataclass(frozen=True)
class Measured:
    """One action: seconds, but for the counts."""

    action: str
    median_gap: float
    longest_gap: float
    took: float
    #: Seconds below 90% of the throughput before, of so many that were watched.
    below: float
    watched: float
    #: The same over the calm before: what the measure shows when nothing happens.
    below_before: float
    #: What Spark reports for loading state, summed over all tasks: the most in a batch since the action began.
    load: float
    #: Tasks whose state had to be loaded elsewhere, and by how much the slowest of them took longer than usual in its
    #: first batch there, by Spark's records of tasks: Spark's own metric does not count the first load of a new store.
    moved: int = 0
    load_of_slowest: float = 0.0

    @property
    def ratio(self) -> float:
        return self.longest_gap / self.median_gap

    @property
    def ratio_but_load(self) -> float:
        return (self.longest_gap - self.load_of_slowest) / self.median_gap


class Stream(Protocol):
    """A running stream, Penstock's or plain."""

    def outputs(self) -> Sequence[Output]: ...

    def times(self) -> Sequence[float]:
        """When the batches came out; cheap, as it is asked again and again."""

    def loads(self) -> Sequence[tuple[float, float]]:
        """When each of the newest batches of the keyed operator began, and the seconds it spent on loading state."""

    @property
    def calm(self) -> bool:
        """Whether no rows wait but those of the present moment."""

    def check(self) -> None:
        """Raise if it has failed."""


def rest(stream: Stream, seconds: float) -> None:
    end = time.monotonic() + seconds
    until(stream, lambda: time.monotonic() >= end, seconds + SILENCE, "time to pass")


def until(stream: Stream, condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        stream.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.05)


def measure(stream: Stream, action: str, act: Callable[[], tuple[int, float]], before: float, after: float) -> Measured:
    """Calm, then the action, which says how many tasks moved and how long the slowest loaded, then what follows; up to
    the next output after that, so that no gap is cut off."""
    until(stream, lambda: stream.calm, CALM, "the backlog to be worked off: lower the rate")
    since = time.time()
    rest(stream, before)
    until(stream, lambda: sum(at >= since for at in stream.times()) > LEAST_GAPS, SILENCE, "output")
    began = time.time()
    moved, load = act()
    ended = time.time()
    rest(stream, after)
    until(stream, lambda: stream.times()[-1] >= ended + after, SILENCE, "output")
    return judge(action, stream.outputs(), stream.loads(), (since, began, ended), moved, load)


def judge(
    action: str,
    outputs: Sequence[Output],
    loads: Sequence[tuple[float, float]],
    times: tuple[float, float, float],
    moved: int = 0,
    load_of_slowest: float = 0.0,
) -> Measured:
    since, began, ended = times
    # Where batches take milliseconds there are thousands of earlier ones, which say nothing about this action.
    outputs = [one for one in outputs if one.at >= since - EARLIER]
    gaps = [(one.at, other.at - one.at) for one, other in pairwise(outputs)]
    usual = statistics.median(gap for at, gap in gaps if since <= at and at + gap <= began)
    last = outputs[-1].at
    rate = _rate(outputs, since, began, usual)
    return Measured(
        action=action,
        median_gap=usual,
        longest_gap=max(gap for at, gap in gaps if at + gap > began),
        took=ended - began,
        below=_below(outputs, began, last, usual, rate),
        watched=last - began,
        below_before=_below(outputs, since, began, usual, rate),
        load=max((load for at, load in loads if at > began - usual), default=0.0),
        moved=moved,
        load_of_slowest=load_of_slowest,
    )


def _below(outputs: Sequence[Output], start: float, stop: float, usual: float, rate: float) -> float:
    """Seconds in which the throughput was below 90% of `rate`."""
    moments = [start + STEP * index for index in range(int((stop - start) / STEP) + 1)]
    return STEP * sum(_rate(outputs, one - WINDOW_GAPS * usual, one, usual) < SHARE * rate for one in moments)


def _rate(outputs: Sequence[Output], start: float, stop: float, usual: float) -> float:
    """Rows a second. A batch's rows count as if they had come out evenly over the usual gap before its end: a batch
    that is a little late is no loss of throughput, and one that is very late leaves a hole, however many rows it has.
    """
    shares = ((one.rows, min(one.at, stop) - max(one.at - usual, start)) for one in outputs)
    return sum(rows * seconds / usual for rows, seconds in shares if seconds > 0) / (stop - start)


def load_of(progress: Any) -> float:
    """Seconds that a batch spent on loading state, summed over its tasks, as Spark reports it."""
    return float(sum(one["customMetrics"].get(LOAD_METRIC, 0) for one in progress["stateOperators"])) / 1000
