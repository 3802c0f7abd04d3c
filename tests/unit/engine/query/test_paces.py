"""How long micro-batches take, as those who write for them know it."""

from __future__ import annotations

import math

from penstock.engine.query.paces import Paces


def test_the_operator_whose_batches_are_the_shortest_counts() -> None:
    paces = Paces()
    paces.noted("slow", 3.0)
    paces.noted("fast", 0.4)
    paces.noted("fast", 0.5)
    assert paces.shortest(["slow", "fast"]) == 0.5
    assert paces.shortest(["slow"]) == 3.0


def test_first_batches_take_long() -> None:
    paces = Paces()
    assert paces.shortest(["count"]) == math.inf
    paces.noted("count", 0.4)
    assert paces.shortest(["count", "other"]) == 0.4
