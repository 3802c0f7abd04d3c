"""A small topology on two machines, and samples of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock import Topology, sinks, sources
from penstock.cluster.model import Cluster, Placement
from penstock.monitor.sample import Levels, Sample, SlotWork, Waiting

CLUSTER = Cluster.of(["a", "b"], 2, cores=2)
A0, A1, B0, B1 = CLUSTER.slots
SCHEMA = "id long, value double"


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def topology():
    """rows -> work -> out, and rows -> out as well."""
    declared = Topology("small")
    rows = declared.source("rows", sources.rate(1, sources.numbers()))
    worked = declared.map("work", same, inputs=[rows], schema=SCHEMA, instances=2)
    declared.sink("out", sinks.noop(), inputs=[worked, rows], weight=3.0)
    return declared.definition()


DEFINITION = topology()
PLACEMENT = Placement({"rows": {A0: 1}, "work": {A1: 1, B0: 2}, "out": {B1: 1}})


def work(slot: str, rows: int = 100, busy: float = 0.25, **more: Any) -> SlotWork:
    fields: dict[str, Any] = {"instances": 1, "rows_out": {"out": rows}, "bytes_in": rows * 8, "bytes_out": rows * 8}
    return SlotWork(slot, **(fields | {"rows": rows, "busy": busy, "cpu": busy / 2} | more))


def sample(
    operator: str, finished: float, rows: int = 100, seconds: float = 0.5, slots: tuple[SlotWork, ...] = (), **more: Any
) -> Sample:
    slots = slots or (work("a/1", rows),)
    fields: dict[str, Any] = {
        "rows_in": {},
        "rows_out": {"out": rows},
        "traffic": {},
        "links": {},
        "waiting": 0.0,
        "overhead": 0.25,
    }
    fields |= {"batch": 0, "started": finished - seconds, "finished": finished, "rows": rows, "slots": slots}
    return Sample(operator, **(fields | more))


def levels(at: float, backlog: Mapping[str, int] | None = None, **more: Any) -> Levels:
    waiting = {name: Waiting(rows, rows * 8, 1.0 if rows else None) for name, rows in (backlog or {}).items()}
    return Levels(at, waiting, **more)
