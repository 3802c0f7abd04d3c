"""How long the micro-batches of each operator take, for the queries that write rows for them."""

from __future__ import annotations

from collections.abc import Collection


class Paces:
    """Of one run. Any thread may call it."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def noted(self, operator: str, seconds: float) -> None:
        """A micro-batch of this operator took so long."""
        self._seconds[operator] = seconds

    def shortest(self, operators: Collection[str]) -> float:
        """How long the last micro-batch took of the operator whose batches are the shortest; 0 if one of them has had
        none yet."""
        return min((self._seconds.get(one, 0.0) for one in operators), default=0.0)
