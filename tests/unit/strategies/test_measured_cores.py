"""What a snapshot says of backlogs, cores and back-pressure is in the load that strategies decide on."""

from __future__ import annotations

from monitor_fakes import CLUSTER, DEFINITION, PLACEMENT

from penstock.autoscaler.measured_load import measured_load
from penstock.monitor.snapshot import Backlog, OperatorSnapshot, SlotSnapshot, Snapshot, StreamSnapshot
from penstock.strategies.gain.rates import learned, saturated
from penstock.strategies.load import Load, SlotLoad
from penstock.strategies.memory import EMPTY


def measured(held_back: bool) -> Load:
    """rows could do 1000 of the 400 that are due, and does 100 because work does 100, with its backlog at the bound."""
    operators = {
        "rows": OperatorSnapshot(
            "rows", "source", 1, rate=100.0, input_rate=400.0, capacity=1000.0, held_back=held_back
        ),
        "work": OperatorSnapshot(
            "work", "map", 3, rate=100.0, capacity=40.0, cpu_utilisation=0.25, backlog=Backlog(1000, growth=0.0)
        ),
        "out": OperatorSnapshot("out", "sink", 1, rate=200.0, capacity=1000.0),
    }
    pairs = [("rows", "work"), ("work", "out"), ("rows", "out")]
    streams = {f"{a}->{b}": StreamSnapshot(f"{a}->{b}", a, "out", b, emit_rate=100.0) for a, b in pairs}
    slots = {
        "a/0": SlotSnapshot("a/0", "a", 2, 3, cpu_utilisation=0.5),
        "a/1": SlotSnapshot("a/1", "a", 2, 0),
    }
    return measured_load(Snapshot(DEFINITION, CLUSTER, PLACEMENT, 0.0, 60.0, 6, operators, streams, slots, {}, {}))


def test_backlog_growth_and_cores_are_those_of_the_snapshot() -> None:
    load = measured(held_back=False)
    by_name = {one.name: one for one in load.operators}
    assert (by_name["work"].backlog_growth, by_name["rows"].backlog_growth) == (0.0, None)
    assert (by_name["work"].cpu, by_name["out"].cpu) == (0.75, None)
    assert load.slots == (SlotLoad("a/0", 2, 1.0),), "what was not measured is left out"
    assert all(one.executed is None and not one.holds_others for one in load.operators)


def test_who_holds_others_back_is_saturated_and_what_was_projected_is_not_measured() -> None:
    load = measured(held_back=True)
    by_name = {one.name: one for one in load.operators}
    assert (by_name["rows"].processing, by_name["rows"].measured) == (400.0, 100.0)
    assert (by_name["work"].processing, by_name["work"].measured) == (120.0, 100.0), "its capacity, and what it did"
    assert [saturated(load, place) for place in range(3)] == [False, True, False], "out waits for nobody"
    assert learned(load, PLACEMENT, EMPTY).rates["work"] == 100.0 / PLACEMENT.total("work")
