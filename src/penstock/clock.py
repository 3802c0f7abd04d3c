"""The time of a run: seconds since the epoch as they were when the process began, and from then on by a clock that
nobody can set.

The wall clock jumps: it is set right after a start without a network, by hand, by a virtual machine that wakes up. So
every duration, and every time that is compared with another (when a row was due, when a batch began, when something was
measured), is in `run_time`. Only what people read is in wall time: times of events, and `shown` of a run's times.
docs/design/0016 says what that means for whom; a test keeps `time.time` out of everything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: What the wall clock and the run's may differ by before anybody is shown that they do: nobody sees less.
NOTICEABLE = 1.0


class Clock:
    """`wall` may be set while it runs, `steady` never is."""

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall = wall
        self._steady = steady
        self._began = wall() - steady()

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
