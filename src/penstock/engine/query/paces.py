"""How long the micro-batches of each operator take, for the queries that write rows for them."""

from __future__ import annotations

import math
from collections.abc import Collection


class Paces:
    """Of one run. Any thread may call it."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def noted(self, operator: str, seconds: float) -> None:
        """A micro-batch of this operator took so long."""
        self._seconds[operator] = seconds

    def shortest(self, operators: Collection[str]) -> float:
        """How long the last micro-batch took of the operator whose batches are the shortest. Where an operator has had
        none yet nothing is known, and first batches take long: they count as longer than all others."""
        return min(self._seconds.get(one, math.inf) for one in operators)
