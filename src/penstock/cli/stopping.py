"""Ctrl-C and SIGTERM: the first one asks for an orderly stop, the second one for a stop at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from penstock.logs import traced

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: What a shell reports for a program that Ctrl-C ended.
INTERRUPTED = 128 + signal.SIGINT


class StoppedEarly(BaseException):
    """A stop was asked for while the cluster was being started: there is nothing to drain yet.

    Not an Exception, so that nothing on the way takes it for a failure that it can handle.
    """


class StopRequests:
    """Counts the requests to stop a topology."""

    def __init__(self) -> None:
        self.count = 0
        #: Whether the stop does not wait until emitted rows have reached the sinks.
        self.at_once = False
        self._asked = threading.Event()
        self._starting = True
        self._tell_early: Callable[[], None] | None = None

    def when_early(self, tell: Callable[[], None]) -> None:
        """Have `tell` called before a request interrupts the start: ending what was started so far takes some time."""
        self._tell_early = tell

    def started(self) -> None:
        """From now on a request waits for the main loop instead of interrupting what is under way."""
        self._starting = False

    def ask(self, drain: bool) -> None:
        """Somebody elsewhere asks for a stop. Asking again for the same changes nothing."""
        self.at_once = self.at_once or not drain
        self.count = max(self.count, 1)
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the next request, up to `seconds`; True if there has been any request so far."""
        self._asked.wait(seconds)
        self._asked.clear()
        return self.count > 0

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.count += 1
        self._asked.set()
        if self.count > 2:
            # Even the stop at once takes too long for this user. The processes that we started end when we do.
            os._exit(128 + number)
        if self._starting and self.count == 1:
            if self._tell_early is not None:
                with traced("the end of the start could not be told to other processes", OSError):
                    self._tell_early()
            raise StoppedEarly

    @contextmanager
    def listening(self) -> Iterator[StopRequests]:
        """Hear requests until the block is left. A signal that whoever started us has us ignore stays ignored: a Ctrl-C
        is not for a job in the background of a script."""
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in heard}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
