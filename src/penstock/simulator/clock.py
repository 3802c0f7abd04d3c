"""The clock of virtual time: it stands still until somebody sleeps, and on the way it does what falls due."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.clock import Alarm, Clock, replaced_by

#: When virtual time begins, in seconds since the epoch: a midnight.
MIDNIGHT = 1_767_225_600.0


class VirtualAlarm:
    """Implements `penstock.clock.Alarm`; no thread waits for it."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def ring(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()

    def cancel(self) -> None:
        self._function = None

    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float | None = None) -> None:
        pass


class VirtualClock(Clock):
    """One thread does everything, in the order of time; at the same time, what was asked for first comes first. What
    rings may sleep: the time goes on then, and whatever falls due meanwhile is done on top of it."""

    def __init__(self, start: float = MIDNIGHT) -> None:
        #: Seconds since the start.
        self.elapsed = 0.0
        self._due: list[tuple[float, int, VirtualAlarm]] = []
        self._count = 0
        super().__init__(lambda: start + self.elapsed, lambda: start + self.elapsed, self._remember)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While this is entered, the time of this process is the time of this clock."""
        with replaced_by(self):
            yield

    def sleep(self, seconds: float) -> None:
        end = self.elapsed + max(seconds, 0.0)
        while self._due and self._due[0][0] <= end:
            at, _, alarm = heapq.heappop(self._due)
            self.elapsed = max(self.elapsed, at)
            alarm.ring()
        self.elapsed = max(self.elapsed, end)

    def every(self, seconds: Callable[[], float], function: Callable[[], None]) -> None:
        """Have a function called again and again; `seconds` says how long to wait before each call."""

        def ring() -> None:
            function()
            self._remember(seconds(), ring, "")

        self._remember(seconds(), ring, "")

    def _remember(self, seconds: float, function: Callable[[], None], _: str) -> Alarm:
        alarm = VirtualAlarm(function)
        self._count += 1
        heapq.heappush(self._due, (self.elapsed + max(seconds, 0.0), self._count, alarm))
        return alarm
