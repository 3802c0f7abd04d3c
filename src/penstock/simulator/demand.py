"""What the outside offers a source over time: steps of constant rates, which may repeat and may be noisy."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Demand:
    """Steps of (seconds, rows a second), one after the other. After the last one its rate goes on, or all of them are
    repeated. With noise, the rate of every sampling interval is off by up to this share."""

    steps: tuple[tuple[float, float], ...]
    repeat: bool = False
    noise: float = 0.0
    seed: int = 0

    @staticmethod
    def constant(rate: float, noise: float = 0.0) -> Demand:
        return Demand(((math.inf, rate),), noise=noise)

    @staticmethod
    def of(*steps: tuple[float, float], repeat: bool = False, noise: float = 0.0) -> Demand:
        """Steps of (hours, rows a second)."""
        return Demand(tuple((hours * 3600.0, rate) for hours, rate in steps), repeat, noise)

    @staticmethod
    def ramp(start: float, stop: float, hours: float, steps: int) -> Demand:
        """From one rate to another, in even steps."""
        rates = [start + (stop - start) * step / (steps - 1) for step in range(steps)]
        return Demand.of(*((hours / steps, rate) for rate in rates))

    @cached_property
    def _ends(self) -> Sequence[float]:
        return list(accumulate(seconds for seconds, _ in self.steps))

    def rate(self, elapsed: float) -> float:
        """Rows a second that are offered at this moment, without noise."""
        return self.steps[self._step(elapsed)][1]

    def until(self, elapsed: float) -> float:
        """When the next step begins; infinity if the rate stays."""
        step, length = self._step(elapsed), self._ends[-1]
        if self.repeat:
            return elapsed - elapsed % length + self._ends[step]
        return self._ends[step] if step + 1 < len(self.steps) else math.inf

    def factor(self, interval: int) -> float:
        """What the noise makes of the rate in a sampling interval; the same for the same interval."""
        if not self.noise:
            return 1.0
        return 1.0 + self.noise * (2 * random.Random(self.seed * 1_000_003 + interval).random() - 1)  # noqa: S311

    def changes(self, hours: float) -> list[float]:
        """The moments, in seconds, at which the rate changes within so many hours."""
        found, at = [], self.until(0.0)
        while at < hours * 3600.0:
            if self.rate(at) != self.rate(math.nextafter(at, 0.0)):
                found.append(at)
            at = self.until(at)
        return found

    def _step(self, elapsed: float) -> int:
        time = elapsed % self._ends[-1] if self.repeat else elapsed
        return min(bisect_right(self._ends, time), len(self.steps) - 1)
