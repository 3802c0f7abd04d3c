"""A clock for tests: it stands still until the test moves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from unittest.mock import patch

#: When a clock begins, unless the test says otherwise: the moment of the first event of `sources.events`.
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """`clock()` is the time in seconds since the epoch, as `time.time()` gives it.

    clock = testing.Clock()
    clock.advance(2.5)
    """

    def __init__(self, start: datetime | float = BEGIN) -> None:
        self.start = start.timestamp() if isinstance(start, datetime) else float(start)
        self.elapsed = 0.0

    def __call__(self) -> float:
        return self.start + self.elapsed

    @property
    def now(self) -> datetime:
        """The same moment as a datetime in UTC."""
        return datetime.fromtimestamp(self(), UTC)

    def advance(self, seconds: float) -> None:
        """Move the clock forward. A clock never goes back."""
        if seconds < 0:
            raise ValueError(f"a test clock cannot be moved by {seconds} seconds: it never goes back")
        self.elapsed += seconds

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While this is entered, `time.time()` and `time.time_ns()` of this process give the time of this clock."""
        with patch("time.time", self), patch("time.time_ns", lambda: round(self() * 1e9)):
            yield
