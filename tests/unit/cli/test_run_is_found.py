"""`penstock run` is found by others from the begin of its start to its very end; Spark is a double."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from control_fixtures import registry

from penstock import Settings, Topology, sinks, sources
from penstock.api.discovery import Phase, Running, all_running
from penstock.api.server import served
from penstock.cli import run as module
from penstock.cli.run import Order, run_topology
from penstock.cli.screen import Screen
from penstock.cli.stopping import StoppedEarly
from penstock.cli.summary import Summary
from penstock.cluster.choice import ClusterChoice
from penstock.errors import PenstockError

__all__ = ["registry"]


class Quiet(Screen):
    def tell(self, text: str) -> None: ...


@pytest.fixture
def order(registry: Path) -> Order:
    topology = Topology("found")
    topology.sink("out", sinks.noop(), inputs=topology.source("rows", sources.rate(1)))
    loaded: Any = SimpleNamespace(ship_by_value=lambda: None, folder="/nowhere")
    return Order(loaded, topology.definition(), ClusterChoice("local"), Settings())


def launching(
    monkeypatch: pytest.MonkeyPatch, problem: BaseException | None = None, unwritten: str = ""
) -> list[Running]:
    """A double of Spark's start and end; what others find at the begin of the one and at the end of the other."""
    seen: list[Running] = []

    @contextmanager
    def started(*words: object, **more: object) -> Iterator[Any]:
        seen.extend(all_running())
        if problem is not None:
            raise problem
        yield SimpleNamespace(stop=lambda drain: True, unwritten_because=unwritten)
        seen.extend(all_running())  # Spark is being stopped, and the state is not free yet

    monkeypatch.setattr(module, "started", started)
    return seen


def test_from_the_begin_of_its_start_to_its_very_end(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = launching(monkeypatch)

    @contextmanager
    def steered(run: Any, kind: str, stop: Any, goal: Any, entry: Any, neighbours: Any, *more: Any) -> Iterator[Any]:
        assert more == ((), True), "no guards of the user's own, and decisions are to be forgotten"
        assert neighbours.seen is None, "a local cluster is not shared"
        with served(SimpleNamespace(), "found", "/state", Settings(), entry):  # type: ignore[arg-type]
            seen.extend(all_running())
            yield None

    summary = Summary("found", "local", {}, 1.0, (), drained=True)
    monkeypatch.setattr(module, "steered", steered)
    monkeypatch.setattr(module.Watch, "until_the_end", lambda watch: (summary, 0))
    assert run_topology(replace(order, forget_decisions=True), Quiet()) == (summary, 0)
    assert [one.phase for one in seen] == [Phase.STARTING, Phase.RUNNING, Phase.ENDING]
    assert all(one.own_process for one in seen)
    assert seen[1].state == "/state"
    assert seen[2].how == "Drained: everything that the sources emitted has reached the sinks."
    assert all_running() == []


def test_one_whose_end_could_not_be_written_says_so(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = launching(monkeypatch, unwritten="CATALOG_UNREACHABLE")

    @contextmanager
    def steered(*words: object) -> Iterator[Any]:
        yield None

    summary = Summary("found", "local", {}, 1.0, (), drained=False)
    monkeypatch.setattr(module, "steered", steered)
    monkeypatch.setattr(module.Watch, "until_the_end", lambda watch: (summary, 0))
    told, _ = run_topology(order, Quiet())
    assert told == replace(summary, unwritten_because="CATALOG_UNREACHABLE")
    assert seen[-1].how.endswith("But CATALOG_UNREACHABLE.")


def test_one_that_fails_does_not_wait_without_end_for_its_catalog(order: Order) -> None:
    """An operation that is rolled back then may wait for it: nobody has asked for a stop."""

    class Failing:
        started_at = 0.0
        told: ClassVar[list[str]] = []

        def check(self) -> None:
            raise PenstockError("OPERATOR_FAILED", "A function failed.", "")

        def expect_end(self) -> None:
            self.told.append("the end")

    run: Any = Failing()
    watch = module.Watch(run, order, Quiet(), SimpleNamespace(count=0), SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(PenstockError, match="A function failed"):
        watch.until_the_end()
    assert run.told == ["the end"]


def test_one_that_is_stopped_while_it_starts_is_gone_afterwards(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = launching(monkeypatch, StoppedEarly())
    summary, code = run_topology(order, Quiet())
    assert (summary.operators, code) == ((), 0)
    assert [one.phase for one in seen] == [Phase.STARTING]
    assert all_running() == []


def test_one_that_is_stopped_while_it_starts_is_ending_while_it_clears_up(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks again for a stop then waits for it: three requests would end it without any clearing up."""
    seen: list[Running] = []

    @contextmanager
    def launch(*words: object, **more: object) -> Iterator[Any]:
        try:
            signal.raise_signal(signal.SIGTERM)
            yield None
        finally:
            seen.extend(all_running())

    monkeypatch.setattr(module, "started", launch)
    run_topology(order, Quiet())
    assert [(one.phase, one.how) for one in seen] == [(Phase.ENDING, "It was stopped before any row was read.")]
    assert all_running() == []


def test_one_that_fails_is_gone_afterwards(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    launching(monkeypatch, PenstockError("CLUSTER_FAILED", "it is away.", "Look for it."))
    with pytest.raises(PenstockError, match="it is away"):
        run_topology(order, Quiet())
    assert all_running() == []
