"""Whenever the window begins anew, what bundles have waited until then is heard before: it belongs to the old one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.model import Cluster, Machine, Slot
from penstock.engine.run import arrangement
from penstock.engine.topology import SparkTopology

CLUSTER = Cluster((Machine("local", (Slot("local", 0), Slot("local", 1))),))
IN_ORDER = ["hears what was waited", "begins anew"]


@pytest.fixture
def done() -> list[str]:
    """What was done, in its order."""
    return []


@pytest.fixture
def run(done: list[str], monkeypatch: pytest.MonkeyPatch) -> SparkTopology:
    """One that was never started, and has a watcher that only notes what it is asked for."""
    topology = Topology("t")
    topology.sink("out", sinks.noop(), inputs=topology.source("rows", sources.rate(1, sources.numbers())))
    slots = SimpleNamespace(usable=lambda: frozenset(CLUSTER.slots), listen=lambda listener: None)
    host: Any = SimpleNamespace(cluster=CLUSTER, slots=slots)
    made = SparkTopology(topology.definition(), host, SimpleNamespace(), Settings())  # type: ignore[arg-type]
    monitor = SimpleNamespace(restart=lambda at: done.append(IN_ORDER[1]))
    watcher: Any = SimpleNamespace(
        monitor=monitor, hear_waits=lambda: done.append(IN_ORDER[0]), start=lambda: None, close=lambda: None
    )
    made._watcher = watcher
    made._catalog = SimpleNamespace()  # type: ignore[assignment]
    made.happened = lambda *words, **more: None  # type: ignore[assignment, return-value]
    monkeypatch.setattr(arrangement, "record", lambda *all_of_it: None)
    for part, does in ((made.chaining, "begin"), (made.queries, "start_all"), (made.queries, "let_all_in")):
        monkeypatch.setattr(part, does, lambda: None)
    monkeypatch.setattr(made, "_open", lambda: None)
    monkeypatch.setattr(made._keeper, "start", lambda: None)
    monkeypatch.setattr(made.gates, "pause", lambda paused: True)
    return made


def test_when_the_placement_changes(run: SparkTopology, done: list[str]) -> None:
    run.placed_anew(1.0)
    assert done == IN_ORDER


def test_when_a_pause_ends(run: SparkTopology, done: list[str]) -> None:
    run.pause()
    assert done == []
    run.resume()
    assert done == IN_ORDER


def test_when_all_queries_are_started(run: SparkTopology, done: list[str]) -> None:
    """The bundles of the first one stand, and wait, while the others are still being started."""
    run.start()
    assert done == IN_ORDER
