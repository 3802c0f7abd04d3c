"""What each machine uses of what it has, where machines are really apart: CPU, memory, link, and how long it was held
back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

from penstock.cluster.readings import MachineReading, MachineUse, use_between


class MachineUses:
    """Keeps readings of the last interval or two. Any thread may call it."""

    def __init__(self, seconds: float) -> None:
        """A use is that of about so many seconds, and of not much more than twice as many."""
        self._seconds = seconds
        self._readings: deque[Mapping[str, MachineReading]] = deque()
        self._lock = threading.Lock()

    def take(self, readings: Mapping[str, MachineReading]) -> Mapping[str, MachineUse]:
        """Keep these readings, and say what was used since those of an interval ago."""
        if not readings:
            return {}
        with self._lock:
            now = max(one.at for one in readings.values())
            # The oldest that is kept is the youngest of those that are an interval old.
            while len(self._readings) > 1 and _at(self._readings[1]) <= now - self._seconds:
                self._readings.popleft()
            earlier = self._readings[0] if self._readings else {}
            if not self._readings or now >= _at(self._readings[-1]) + self._seconds / 4:
                self._readings.append(readings)
        uses = {name: use_between(earlier[name], one) for name, one in readings.items() if name in earlier}
        return {name: use for name, use in uses.items() if use is not None}


def _at(readings: Mapping[str, MachineReading]) -> float:
    return max(one.at for one in readings.values())
