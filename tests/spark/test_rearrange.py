"""A running topology takes a new placement: instances and tasks move, and every row is still counted once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from test_results import WAIT, count, written

from penstock import PenstockError, Topology, sinks, sources
from penstock.cluster.model import Placement, Slot
from penstock.engine.host import SparkHost
from penstock.engine.runtime import Run

CONTENT = sources.sentences(words=5, vocabulary=100, seed=4)
ROWS = 30_000


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.list_flatten(pc.utf8_split_whitespace(batch.column(0)))], names=["word"])


def counting(folder: Path) -> Topology:
    topology = Topology("rearranged")
    lines = topology.source("lines", sources.rate(2_000, CONTENT, rows=ROWS))
    words = topology.map("split", split, inputs=[lines], schema="word string")
    counts = topology.keyed("count", count, inputs=[words], key="word", schema="word string, n long", tasks=4)
    topology.sink("counts", sinks.parquet(folder), inputs=[counts])
    return topology


def slots_in_use(run: Run, operator: str) -> set[str]:
    """Where the bundles of the newest batch ran, by their own account."""
    with run.statistics._lock:
        recent = run.statistics._recent.get(operator)
        return {bundle.slot for bundle in recent[-1].bundles} if recent else set()


def until(run: Run, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        assert not run.wait(0.05), "it ended before anything could be seen"


@pytest.mark.timeout(240)
def test_instances_and_tasks_move_under_load(standalone_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    slots = standalone_host.cluster.slots
    executor = standalone_host.bindings()
    names = ("lines", "split", "count", "counts")

    def placement(split_on: dict[Slot, int], tasks: tuple[Slot, ...]) -> Placement:
        at_first = {name: {slots[0]: 1} for name in names}
        return Placement({**at_first, "split": split_on}, {"count": tasks})

    def locations(tasks: tuple[Slot, ...]) -> list[str]:
        return [f"executor_{executor[slot].host}_{executor[slot].id}" for slot in tasks]

    before = placement({slots[0]: 1}, (slots[0],) * 4)
    with running(counting(tmp_path / "out"), standalone_host, placement=before) as run:
        until(run, lambda: run.statistics.totals("counts")[0] > 0)
        assert slots_in_use(run, "split") == {slots[0].name}
        assert run.state_locations("count") == locations(before.tasks["count"])

        after = placement({slots[1]: 2, slots[2]: 1}, (slots[3], slots[0], slots[3], slots[1]))
        changed = run.rearrange(after)
        assert len(changed) == 1 + 3, "one operator's instances, and three of four tasks"
        assert run.rearrange(after) == ()
        until(run, lambda: slots_in_use(run, "split") == {slots[1].name, slots[2].name})
        until(run, lambda: run.state_locations("count") == locations(after.tasks["count"]))

        with pytest.raises(PenstockError) as caught:
            run.rearrange(placement({Slot("nowhere", 0): 1}, before.tasks["count"]))
        assert caught.value.name == "BAD_PLACEMENT"
        assert run.placement == after

        run.rearrange(before)
        until(run, lambda: run.state_locations("count") == locations(before.tasks["count"]))
        assert run.wait(WAIT)
    last: dict[str, int] = {}
    for row in written(tmp_path / "out"):
        last[row["word"]] = max(last.get(row["word"], 0), row["n"])
    assert last == Counter(split(CONTENT.rows(0, ROWS)).column(0).to_pylist())
