"""Tasks of two keyed operators move in one change: each operator switches at a batch boundary of its own, and what does
not lead to them flows on."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from conftest import TEST_SETTINGS
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.cluster.model import Placement
from penstock.engine.topology import SparkTopology
from penstock.plans.enacting import Status
from penstock.plans.plan import MoveTask, Plan

KEYED = ("count", "last")
SETTINGS = replace(TEST_SETTINGS, change_seconds=120, drain_seconds=120)


def declared() -> Topology:
    """events -> tag -> count -> counts; tag -> last -> lasts; tag -> rows."""

    def tag(batch):
        return batch.select(["id", "key"])

    def count(frame):
        return frame.groupBy("key").count()

    def last(frame):
        return frame.groupBy("key").agg({"id": "max"}).withColumnRenamed("max(id)", "id")

    topology = Topology("two_moves")
    events = topology.source("events", sources.rate(300, sources.events(keys=60, seed=8)))
    tagged = topology.map("tag", tag, inputs=[events], schema="id long, key string")
    shape = {"inputs": [tagged], "key": "key", "tasks": 4}
    counted = topology.keyed("count", count, schema="key string, count long", **shape)
    newest = topology.keyed("last", last, schema="key string, id long", **shape)
    topology.sink("counts", sinks.noop(), inputs=[counted])
    topology.sink("lasts", sinks.noop(), inputs=[newest])
    topology.sink("rows", sinks.noop(), inputs=[tagged])
    return topology


def flowing(run: SparkTopology) -> None:
    """Wait until both keyed operators have finished some batches, from now on."""
    seen = {name: run.statistics.batches(name) for name in KEYED}
    deadline = time.monotonic() + WAIT
    while any(run.statistics.batches(name) < seen[name] + 3 for name in KEYED):
        assert time.monotonic() < deadline, "both operators get rows"
        run.wait(0.05)


@pytest.mark.live
@pytest.mark.timeout(400)
def test_two_operators_migrate_in_one_change_while_the_others_flow_on(standalone_host, running) -> None:
    here, *_, there = standalone_host.cluster.slots
    names = ("events", "tag", *KEYED, "counts", "lasts", "rows")
    start = Placement({name: {here: 1} for name in names}, dict.fromkeys(KEYED, (here,) * 4))
    with running(declared(), standalone_host, settings=SETTINGS, placement=start) as run:
        flowing(run)
        plan = Plan(tuple(MoveTask(name, task, there) for name in KEYED for task in (1, 2)))
        outcome = run.changes.carry_out(plan)
        assert outcome.status is Status.DONE, outcome.reason
        count, last = outcome.placed.migrations
        assert (count.operator, last.operator) == KEYED
        assert count.asked_at == last.asked_at, "it is one change"
        for moved in (count, last):
            assert moved.tasks == (1, 2)
            assert 0 < moved.moved_bytes < moved.state_bytes
            first, second = moved.barriers.first, moved.barriers.second
            assert first is not None and second is not None
            assert second.batch == first.batch + 1
            assert second.at > moved.asked_at
            others = {flow.operator: flow for flow in moved.others}
            assert set(others) == set(names) - set(KEYED)
            assert {name for name, flow in others.items() if flow.behind} == {"counts", "lasts"}
            assert others["tag"].rows_per_second_during > 0, "the streams that do not lead to the tasks flow on"
        told = [event for event in run.events.since(0) if "barrier" in event.fields]
        assert sorted((event.subject, event.fields["barrier"]) for event in told) == [
            (name, which) for name in KEYED for which in ("first", "second")
        ]
        for name in KEYED:
            assert run.placements.observed(name).tasks == {0: here, 1: there, 2: there, 3: here}
        flowing(run)
        assert run.stop(), "everything that was emitted arrives"
