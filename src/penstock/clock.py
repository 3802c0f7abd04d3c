"""The time of a run: seconds since the epoch as they were when the process began, and from then on by a clock that
nobody can set.

The wall clock jumps: it is set right after a start without a network, by hand, by a virtual machine that wakes up. So
every duration, and every time that is compared with another (when a row was due, when a batch began, when something was
measured), is in `run_time`. Only what people read is in wall time: times of events, and `shown` of a run's times.
docs/design/0016 says what that means for whom; a test keeps `time.time` out of everything else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

#: What the wall clock and the run's may differ by before anybody is shown that they do: nobody sees less.
NOTICEABLE = 1.0


class Alarm(Protocol):
    """Something that is to be done later."""

    def cancel(self) -> None: ...
    def is_alive(self) -> bool:
        """Whether a thread of its own waits for it, or does it."""

    def join(self, timeout: float | None = None) -> None: ...


Alarms = Callable[[float, Callable[[], None], str], Alarm]


def _in_a_thread(seconds: float, function: Callable[[], None], name: str) -> Alarm:
    timer = threading.Timer(seconds, function)
    timer.name, timer.daemon = name, True
    timer.start()
    return timer


class Clock:
    """`wall` may be set while it runs, `steady` never is. `alarms` does what is to be done later."""

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float], alarms: Alarms = _in_a_thread) -> None:
        self._wall = wall
        self._steady = steady
        self._alarms = alarms
        self._began = wall() - steady()

    def later(self, seconds: float, function: Callable[[], None], name: str) -> Alarm:
        """Have a function called in so many seconds, in a thread of this name."""
        return self._alarms(seconds, function, name)

    def run_time(self) -> float:
        return self._began + self._steady()

    def shown(self, at: float) -> float:
        """A time of the run as the wall clock has it now: what was a minute ago is shown as a minute ago."""
        return at + self._ahead()

    def meant(self, shown: float) -> float:
        """The time of the run that somebody means who reads the wall clock."""
        return shown - self._ahead()

    def _ahead(self) -> float:
        """By how much the wall clock was set since the process began."""
        ahead = self._wall() - self.run_time()
        return ahead if abs(ahead) >= NOTICEABLE else 0.0


def wall_time() -> float:
    """For people, and to be compared with times of files."""
    return time.time()


_CLOCK = Clock(wall_time, time.monotonic)
run_time = _CLOCK.run_time
shown = _CLOCK.shown
meant = _CLOCK.meant
later = _CLOCK.later


@contextmanager
def replaced_by(clock: Clock) -> Iterator[None]:
    """While this is entered, the time of this process is that of another clock: for a topology in virtual time. No
    topology may run in real time beside it."""
    before = dict(vars(_CLOCK))
    vars(_CLOCK).update(vars(clock))
    try:
        yield
    finally:
        vars(_CLOCK).update(before)
