"""Memory that a process has freed, and that the C library keeps.

The GNU C library gives every thread memory of its own (an arena), and keeps the pages between what is still used there.
A driver has some 40 threads, and operations come and go in all of them; a Python worker has a thread for each of
several instances. Over hours the resident memory of both grows, although nothing in them does.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

#: Seconds between two returns. One takes a few milliseconds of a driver's time.
RETURN_SECONDS = 60.0


class FreedMemory:
    """Gives memory that is not used back to the system, once in a while."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, give_back: Callable[[], bool] | None = None
    ) -> None:
        """`give_back` is what returns the memory; by default that of the C library."""
        self._clock = clock
        self._give_back = give_back
        self._returned = clock()

    def return_sometimes(self) -> bool:
        """Give memory back, unless that was done in the last minute. Whether it was done now."""
        if self._clock() < self._returned + RETURN_SECONDS:
            return False
        self._returned = self._clock()
        return return_now() if self._give_back is None else self._give_back()


def return_now() -> bool:
    """Give back what can be given back. False where the C library has no such function (it is GNU's)."""
    trim = _trim()
    if trim is None:
        return False
    trim(0)
    return True


@functools.cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
