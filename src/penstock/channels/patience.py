"""How long a database is waited for: without end while a topology runs, and for a few seconds when it ends.

A topology that ends must not wait for a server that hangs or is away. From then on each transaction has so many
seconds, with all its attempts. After the first one that was not answered in time, Penstock sends nothing more: it does
not know what that one has done, so nothing may build on it. The next start looks what the database has.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.channels.line import Line, lost_connection


class Patience:
    """Any thread may call it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: How long a transaction may take, and since when that holds.
        self._seconds = math.inf
        self._since = -math.inf
        self._is_over = False
        #: What is under way: when its transaction began, and what will cut it off.
        self._used: dict[Line, float] = {}
        self._timers: dict[Line, threading.Timer] = {}

    def limit(self, seconds: float) -> None:
        """From now on a transaction has so many seconds; one that is under way has them from now on. Another limit
        replaces this one."""
        with self._changed:
            self._seconds, self._since = seconds, time.monotonic()
            for line, began in self._used.items():
                self._set_timer(line, began)
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be sent."""
        return self._is_over

    def check(self) -> None:
        """Raise the error of a lost connection if nothing more is to be sent."""
        if self._is_over:
            raise lost_connection(TimeoutError(f"{self._unanswered}, and is not asked again"))

    def pause(self, seconds: float, began: float) -> bool:
        """Wait before the next attempt of a transaction; False if there is to be none."""
        with self._changed:
            until = time.monotonic() + seconds
            while not self._is_over and (left := min(until, self._deadline(began)) - time.monotonic()) > 0:
                self._changed.wait(left)
            if time.monotonic() >= self._deadline(began):
                self._end()
            return not self._is_over

    @contextmanager
    def watching(self, line: Line, began: float) -> Iterator[None]:
        """In this block, the line is cut off when the time of its transaction is over."""
        try:
            with self._changed:
                self.check()
                self._used[line] = began
                self._set_timer(line, began)
            yield
        finally:
            with self._changed:
                self._used.pop(line, None)
                if (timer := self._timers.pop(line, None)) is not None:
                    timer.cancel()

    # With the lock held

    @property
    def _unanswered(self) -> str:
        return f"it has not answered for {self._seconds:g} s while the topology ended"

    def _deadline(self, began: float) -> float:
        return max(began, self._since) + self._seconds

    def _set_timer(self, line: Line, began: float) -> None:
        if (timer := self._timers.pop(line, None)) is not None:
            timer.cancel()
        deadline = self._deadline(began)
        if deadline < math.inf:
            timer = threading.Timer(max(deadline - time.monotonic(), 0.0), self._cut_off, (line, began))
            timer.daemon = True
            self._timers[line] = timer
            timer.start()

    def _end(self) -> None:
        self._is_over = True
        self._changed.notify_all()

    # Without it

    def _cut_off(self, line: Line, began: float) -> None:
        with self._changed:
            if line not in self._used:
                return  # it is over just now
            if time.monotonic() < self._deadline(began):
                self._set_timer(line, began)  # there is another limit meanwhile
                return
            self._end()
            why = f"{self._unanswered}, so Penstock has cut off the connection"
        line.cut_off(why)
