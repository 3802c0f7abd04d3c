"""Where tasks have been: the placer remembers it of executors that are there."""

from __future__ import annotations

import pytest

from penstock.cluster.provider import Executor
from penstock.engine.spark import state_placement
from penstock.engine.spark.state_placement import StatePlacer


class Internals:
    """Executors that come and go."""

    def __init__(self) -> None:
        self.there: frozenset[str] = frozenset()
        self.asked = 0

    def executor_ids(self) -> frozenset[str]:
        self.asked += 1
        return self.there


def test_executors_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_placement, "stateful_operators", lambda frame: (1, False))
    internals = Internals()
    placer = StatePlacer(internals, None, 2)  # type: ignore[arg-type]
    for number in range(1, 50):
        internals.there = frozenset({"0", str(number)})
        for _ in range(3):
            placer.ran({0: "0", 1: str(number)})
            placer.ran({0: None, 1: str(number)})
    assert placer.been_on(Executor("0", "a", 1)) == {0}
    assert placer.been_on(Executor("49", "b", 1)) == {1}
    assert placer.been_on(Executor("7", "b", 1)) == frozenset()
    assert set(placer._been) == {"0", "49"}
    assert internals.asked == 50, "only for an executor that is new"
