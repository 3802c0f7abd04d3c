"""The tables and bars of `make bench-stela` on made-up results: the oracle, and predicted against measured."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import stela
from stela_oracle import judged, oracle
from stela_runs import Result, Times, _Operation, expectation_of, projection_of, works_off
from stela_tables import oracle_bars, prediction_bars, table

from penstock import Topology, sinks, sources
from penstock.autoscaler.answers import expected_of
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.policy import view_of
from penstock.autoscaler.throughput_change import ThroughputChange, ThroughputPoint
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.monitor.snapshot import Backlog, OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.settings import Settings
from penstock.strategies.decision import Decision
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.rules import Rules
from penstock.workloads import service_time


def result(after: float, predicted: float, corrections: int = 0, expected: float | None = None) -> Result:
    measured = ThroughputChange(
        before=100.0, after=after, convergence=5.0, convergence_sigma=4.0, settled=3.0, time_at_zero=0.0, time_below=1.0
    )
    return Result(measured, predicted, 200.0, ("a",), (), 0.9, 2.0, (), 0.0, corrections, expected)


RESULTS = {
    "gain": [result(190, 200, 1, 195), result(188, 200, 0, 196), result(192, 200, 0, 197)],
    "stela": [result(150, 150, 0, 149)],
    "oracle": [result(200, 201, 0, 202), result(196, 200, 0, 198)],
}


def test_strategies_are_measured_against_what_the_oracle_measured() -> None:
    bars = {bar.name: bar for bar in oracle_bars("star", RESULTS, stela.OF_ORACLE)}
    gain = bars["star, gain: after / oracle, both measured"]
    assert gain.figure == pytest.approx(190 / 198) and gain.met
    below = bars["star, stela: after / oracle, both measured"]
    assert below.figure == pytest.approx(150 / 198) and not below.met
    assert oracle_bars("star", {"gain": RESULTS["gain"]}, stela.OF_ORACLE) == []


def test_the_table_has_a_cell_for_every_column() -> None:
    lines: list[str] = []
    table(RESULTS, lines.append)
    assert len({line.count("|") for line in lines}) == 1
    assert "| 0.96 | 1 | 0 | 196 | 200 |" in lines[2]
    alone: list[str] = []
    table({"stela": RESULTS["stela"]}, alone.append)
    assert "| nan |" in alone[2], "no oracle was measured"


def test_predictions_are_judged_by_their_median_error_and_by_r2() -> None:
    found = judged([(100, 100), (110, 100), (200, 200), (360, 300)])
    assert found.median_error == pytest.approx(0.05)
    assert found.r2 == pytest.approx(1 - (100 + 3600) / (75**2 + 75**2 + 25**2 + 125**2))
    assert judged([(1, 1), (1, 0)]).median_error == math.inf
    assert math.isnan(judged([(1, 1)]).median_error)


OPERATIONS = [one for some in RESULTS.values() for one in some]


def test_the_bars_are_on_what_a_controller_expects() -> None:
    said: list[str] = []
    bars = prediction_bars(OPERATIONS, said.append)
    assert [bar.name for bar in bars] == [
        "expected throughput: median error over all operations",
        "expected throughput: R2 over all operations",
    ]
    expected = judged([(one.expected or 0.0, one.measured.after) for one in OPERATIONS])
    own = judged([(one.predicted, one.measured.after) for one in OPERATIONS])
    assert [bar.figure for bar in bars] == [expected.median_error, expected.r2]
    assert [bar.met for bar in bars] == [True, False], "R2 is about 0.9"
    assert len({line.count("|") for line in said}) == 1
    assert "| operations with this figure, of 6 | 6 | 6 |" in said
    assert f"| R2 | {expected.r2:.3f} | {own.r2:.3f} |\n" in said
    far_off = [replace(one, predicted=1.0) for one in OPERATIONS]
    assert prediction_bars(far_off, said.append) == bars, "a strategy's own projection has no bar"
    assert prediction_bars([], said.append) == []


def test_operations_without_an_expectation_are_left_out_and_that_is_said() -> None:
    said: list[str] = []
    old = [replace(one, expected=None) for one in OPERATIONS]
    assert [bar.met for bar in prediction_bars(old, said.append)] == [False, False]
    assert "| operations with this figure, of 6 | 0 | 6 |" in said
    bars = prediction_bars([*OPERATIONS, *old], said.append)
    assert bars[0].name == "expected throughput: median error over 6 of 12 operations"


def test_records_that_were_kept_without_an_expectation_are_read(tmp_path: Path) -> None:
    timeline = (ThroughputPoint(1.0, 5.0), ThroughputPoint(9.0, 5.0))
    new = replace(OPERATIONS[0], timeline=timeline)
    old = {name: value for name, value in asdict(new).items() if name != "expected"}
    file = tmp_path / "star.json"
    file.write_text(json.dumps([("gain", old), ("gain", asdict(new))]))
    found = stela.kept(file, Times(2.0, 1.0, 1.0, 1.0), ["gain", "gain"], lambda: [])
    assert [one.expected for _, one in found] == [None, 195]


# What a controller would expect of the operation, by the snapshot before it

SPEEDS = {"numbers": 1000.0, "slow": 100.0, "out": 1000.0}


def snapshot() -> Snapshot:
    """numbers -> slow -> out: 300 rows a second are offered, one instance of "slow" does 90, though it was estimated to
    do 100, and the others pile up before it."""
    made = Topology("line")
    numbers = made.source("numbers", sources.rate(300, sources.numbers()))
    slow = made.map("slow", service_time(0.01), inputs=[numbers], schema="id long, value double")
    made.sink("out", sinks.noop(), inputs=[slow])
    definition, cluster = made.definition(), Cluster.of(["m"], 2)
    rates, inputs = {"numbers": 300.0, "slow": 90.0, "out": 90.0}, {"numbers": 300.0, "slow": 300.0, "out": 90.0}
    operators = {
        one.name: OperatorSnapshot(
            one.name,
            one.kind,
            1,
            rate=rates[one.name],
            input_rate=inputs[one.name],
            capacity=SPEEDS[one.name],
            utilisation=rates[one.name] / SPEEDS[one.name],
            backlog=Backlog(5000, 40_000, 1.0, 210.0) if one.name == "slow" else Backlog(0, 0, None, 0.0),
        )
        for one in definition.operators
    }
    streams = {
        f"{one}->{other}": StreamSnapshot(f"{one}->{other}", one, "out", other, emit_rate=rates[one])
        for one, other in (("numbers", "slow"), ("slow", "out"))
    }
    # Not on one slot: these are no chain.
    first, second = cluster.slots
    placed = Placement({"numbers": {first: 1}, "slow": {second: 1}, "out": {first: 1}}, {})
    return Snapshot(definition, cluster, placed, 0.0, 200.0, 20, operators, streams, {}, {}, {})


def two_slow(seen: Snapshot) -> Decision:
    first, second = seen.cluster.slots
    placed = Placement({"numbers": {first: 1}, "slow": {second: 2}, "out": {first: 1}}, {})
    return Decision("storm", placed, (), "")


def test_the_expectation_is_that_of_the_controller() -> None:
    seen, settings = snapshot(), Settings()
    decision, load = two_slow(seen), measured_load(seen, on_demand=True)
    by_controller = expected_of(view_of(seen, settings), decision.placement)
    assert by_controller is not None
    found = expectation_of(seen, load, settings, decision)
    assert found == by_controller.throughput == pytest.approx(180), "calibrated by what the sinks measured"


def test_an_expectation_without_capacities_is_the_strategys_own_or_none() -> None:
    seen = snapshot()
    load = measured_load(seen, on_demand=True)
    load = load.at(tuple(replace(one, capacity=None) for one in load.operators), load.streams)
    decision = two_slow(seen)
    assert expectation_of(seen, load, Settings(), decision) is None
    projected = replace(decision, projected=SimpleNamespace(throughput=170.0))
    assert expectation_of(seen, load, Settings(), projected) == 170


def test_an_operation_keeps_the_expectation_beside_the_strategys_own_projection() -> None:
    seen = snapshot()
    load = measured_load(seen, on_demand=True)
    run = SimpleNamespace(settings=Settings(), definition=seen.definition, listen=lambda listener: None)
    operation = _Operation(run, seen.placement, Times(1.0, 1.0, 10.0, 20.0), 1)
    decision = replace(two_slow(seen), strategy="gain", projected=SimpleNamespace(throughput=170.0))
    samples = [ThroughputPoint(float(at), 90.0 if at < 10 else 175.0) for at in range(40)]
    found = operation._judge(seen, load, decision, 2.0, samples, 10.0)
    assert (found.predicted, found.expected) == (170, pytest.approx(180))
    assert found.measured.after == pytest.approx(175)
    assert found.duty == pytest.approx(0.9)


def test_the_oracle_decides_for_the_best_of_all_assignments() -> None:
    """s -> a -> t: a lacks two instances, and nothing else lacks any."""
    operators = (
        OperatorLoad("s", 300, external=300, capacity=900),
        OperatorLoad("a", 100, capacity=100),
        OperatorLoad("t", 100, capacity=900),
    )
    load = Load(operators, (StreamLoad("s", "a", 300), StreamLoad("a", "t", 100)))
    cluster = Cluster.of(["m"], 1)
    placement = deal({"s": 1, "a": 1, "t": 1}, {}, cluster)
    found = oracle(load, placement, cluster, [Machine("n", (Slot("n", 0),))], Rules())
    assert found.placement.total("a") >= 3
    assert found.projected is not None and found.projected.throughput == 300
    assert projection_of(found, 1.0) == 300
    assert projection_of(Decision("storm", placement, (), ""), 1.0) == 1.0


def test_the_campaign_has_the_oracle_and_gain() -> None:
    assert {"gain", "stela", "oracle"} <= set(stela.STRATEGIES)
    assert [*stela.by_strategy([("oracle", RESULTS["oracle"][0]), ("gain", RESULTS["gain"][0])])] == ["gain", "oracle"]


def test_what_piled_up_is_being_worked_off_while_it_shrinks() -> None:
    """Not where more comes than is done, where little waits, or where nobody knows."""

    def waiting(rows: int | None) -> Snapshot:
        seen = snapshot()
        slow = replace(seen.operators["slow"], backlog=Backlog(rows))
        return replace(seen, operators={**seen.operators, "slow": slow})

    assert works_off(waiting(5000), waiting(4900), 5.0) == ["slow"]
    assert works_off(waiting(5000), waiting(4995), 5.0) == [], "that is noise"
    assert works_off(waiting(5000), waiting(5900), 5.0) == []
    assert works_off(waiting(80), waiting(0), 5.0) == [], "90 rows are a second's work"
    assert works_off(waiting(None), waiting(4900), 5.0) == works_off(waiting(5000), waiting(None), 5.0) == []
