"""The gate in front of an operator: whether rows are let in."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.channels.log import SeenChannels


class Gate:
    """Closed at first, so that everything can be placed before the first batch; opened; paused; closed for good."""

    def __init__(self, channels: SeenChannels, outputs: Sequence[str], *, throttle: bool = True) -> None:
        self._channels = channels
        self._outputs = outputs
        self._throttle = throttle
        self.is_open = False
        self.closed = False
        #: Let no rows in for the time being.
        self.paused = False
        #: Whether there is no room for the output now, and whether there was none before the batch that began last.
        self.throttled = False
        self.held_back = False
        self.found_no_room = False
        #: Whether all that will ever come is there.
        self.nothing_more = False

    def open(self) -> None:
        """Let rows in, unless it was closed for good."""
        with self._channels.lock:
            self.is_open = not self.closed
            self._channels.notify()

    def close(self) -> None:
        """Let no further rows in, for good; a batch that has begun goes on."""
        with self._channels.lock:
            self.is_open, self.closed = False, True
            self._channels.notify()

    def pause(self, paused: bool = True) -> None:
        """Let no rows in until this is taken back; a batch that has begun goes on."""
        with self._channels.lock:
            self.paused = paused
            self._channels.notify()

    def expect_nothing_more(self) -> None:
        """What is there is all: who writes to it has ended for good."""
        with self._channels.lock:
            if not self.nothing_more:
                self.nothing_more = True
                self._channels.notify()

    def lets_in(self) -> bool:
        """Whether a batch may begin; notes whether there is room for what it will write."""
        self.throttled = self._throttle and any(self._is_full(channel) for channel in self._outputs)
        self.found_no_room |= self.throttled
        return self.is_open and not self.paused and not self.throttled

    def _is_full(self, channel: str) -> bool:
        return self._channels.full(channel)
