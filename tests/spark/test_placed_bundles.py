"""Where bundles and state partitions ran, by Spark's own event log, is where the placement says."""

from __future__ import annotations

import json
import time
from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from penstock import Topology, sinks, sources
from penstock.cluster.model import Placement
from penstock.engine.spark.host import SparkHost
from penstock.engine.standing.query import StandingQuery


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.list_flatten(pc.utf8_split_whitespace(batch.column(0)))], names=["word"])


def count(frame):
    return frame.groupBy("word").count()


def word_count(name: str, rows: int | None, rate: float = 1_000_000) -> Topology:
    topology = Topology(name)
    lines = topology.source("lines", sources.rate(rate, sources.sentences(vocabulary=50), rows=rows), instances=2)
    words = topology.map("split", split, inputs=[lines], schema="word string", instances=3)
    counts = topology.keyed(
        "count", count, inputs=[words], key="word", schema="word string, count long", tasks=4, instances=2
    )
    topology.sink("out", sinks.noop(), inputs=[counts])
    return topology


def executors_by_operator(events: list[str]) -> dict[str, dict[int, set[str]]]:
    """From lines of the event log: operator (its pool) -> number of the task in the stage -> executors that ran it."""
    pool_of_stage: dict[int, str] = {}
    ran: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in events:
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            pool = event["Properties"].get("spark.scheduler.pool", "")
            pool_of_stage |= dict.fromkeys(event["Stage IDs"], pool)
        elif event["Event"] == "SparkListenerTaskEnd":
            info = event["Task Info"]
            ran[pool_of_stage[event["Stage ID"]]][info["Index"]].add(info["Executor ID"])
    return ran


def event_log(hosts) -> list[str]:
    [log] = (hosts.folder / "standalone" / "events").iterdir()
    return log.read_text().splitlines()


def test_bundles_and_tasks_run_on_their_slots(standalone_host: SparkHost, running, hosts) -> None:
    topology = word_count("placed", rows=None, rate=4_000)
    slots = standalone_host.cluster.slots
    placement = Placement(
        {
            "lines": {slots[0]: 2},
            "split": {slots[1]: 2, slots[2]: 1},
            "count": {slots[3]: 1, slots[0]: 1},
            "out": {slots[2]: 1},
        },
        {"count": (slots[3], slots[0], slots[3], slots[3])},
    )
    # The host is shared: other tests' operators may have the same names.
    before = len(event_log(hosts))
    with running(topology, standalone_host, placement=placement) as run:
        # A bundle that comes late has nothing to do until then: the others take all rows.
        deadline = time.monotonic() + 120
        while len(run.observed_places.of("split")) < 2 or not run.statistics.batches("out"):
            assert time.monotonic() < deadline
            run.wait(0.1)
        locations = run.placements.state_locations("count")
        reported = {name: run.observed_places.of(name) for name in ("lines", "split", "out")}
    executor = {slot: one.id for slot, one in standalone_host.slots.bindings().items()}
    ran = executors_by_operator(event_log(hosts)[before:])
    everywhere = {name: set().union(*by_task.values()) for name, by_task in ran.items()}
    assert everywhere["lines"] == {executor[slots[0]]}
    assert everywhere["split"] == {executor[slots[1]], executor[slots[2]]}
    assert everywhere["out"] == {executor[slots[2]]}
    assert everywhere["count"] == {executor[slots[3]], executor[slots[0]]}
    # Each task's state is where the plan says, as Spark's coordinator has it.
    planned = [f"executor_{slot.machine}_{executor[slot]}" for slot in placement.tasks["count"]]
    assert locations == planned
    # And the bundles' own view agrees with Spark's.
    assert reported["split"] == {slots[1].name: {executor[slots[1]]}, slots[2].name: {executor[slots[2]]}}


def test_a_bundle_on_a_slot_with_two_cores_is_two_processes(standalone_host: SparkHost, running) -> None:
    topology = word_count("processes", rows=5_000)
    slot = standalone_host.cluster.slots[0]
    names = [operator.name for operator in topology.definition().operators]
    placement = Placement({name: {slot: 3 if name == "split" else 1} for name in names}, {"count": (slot,) * 4})
    with running(topology, standalone_host, placement=placement) as run:
        assert run.wait(120)
        query = run.query("split")
        assert isinstance(query, StandingQuery)
        assert query.turn is not None
        assert [bundle.instances for bundle in query.turn.bundles] == [1, 2]
        # Two tasks, by Spark's own records: a Python worker has one at a time.
        observed = run.placements.observed("split")
        assert observed is not None
        assert observed.instances == {slot: 3}
