"""One list of metrics, which everything else is named after."""

from __future__ import annotations

import dataclasses

from penstock.monitor.latency import Latency
from penstock.monitor.metric import METRICS, OVERHEAD_PARTS
from penstock.monitor.snapshot import Backlog, OperatorOnSlot, OperatorSnapshot, SlotSnapshot, StreamSnapshot

#: What a snapshot has that is no metric: who it is about, and what holds metrics.
STRUCTURE = {"name", "kind", "producer", "output", "consumer", "machine", "cores", "slots", "throttled", "held_back"}
HOLDERS = {"emit_rates", "overhead", "backlog", "latency", "state", "bad_rate"}


def test_every_metric_has_a_unit_and_a_meaning() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.unit
        assert metric.of
        assert metric.meaning[0].isupper()
        assert metric.meaning.endswith(".")


def test_what_a_snapshot_shows_is_a_metric() -> None:
    for kind in (OperatorSnapshot, OperatorOnSlot, StreamSnapshot, SlotSnapshot):
        names = {field.name for field in dataclasses.fields(kind)}
        assert names <= METRICS.keys() | STRUCTURE | HOLDERS, kind
    assert {f"backlog_{field.name}" for field in dataclasses.fields(Backlog)} <= METRICS.keys()
    assert {f"latency_{field.name}" for field in dataclasses.fields(Latency)} - {"latency_rows"} <= METRICS.keys()
    assert {f"overhead_{part}" for part in OVERHEAD_PARTS} <= METRICS.keys()
