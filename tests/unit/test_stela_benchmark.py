"""The tables and bars of `make bench-stela` on made-up results: the oracle, and predicted against measured."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import stela
from stela_oracle import judged, oracle
from stela_runs import Result, expected
from stela_tables import oracle_bars, prediction_bars, table

from penstock.autoscaler.throughput_change import ThroughputChange
from penstock.cluster.model import Cluster, Machine, Slot
from penstock.strategies.decision import Decision
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.rules import Rules


def result(after: float, predicted: float, corrections: int = 0) -> Result:
    measured = ThroughputChange(
        before=100.0, after=after, convergence=5.0, convergence_sigma=4.0, settled=3.0, time_at_zero=0.0, time_below=1.0
    )
    return Result(measured, predicted, 200.0, ("a",), (), 0.9, 2.0, (), 0.0, corrections)


RESULTS = {
    "gain": [result(190, 200, 1), result(188, 200), result(192, 200)],
    "stela": [result(150, 150)],
    "oracle": [result(200, 201), result(196, 200)],
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
    assert "| 0.96 | 1 | 0 | 200 |" in lines[2]
    alone: list[str] = []
    table({"stela": RESULTS["stela"]}, alone.append)
    assert "| nan |" in alone[2], "no oracle was measured"


def test_predictions_are_judged_by_their_median_error_and_by_r2() -> None:
    found = judged([(100, 100), (110, 100), (200, 200), (360, 300)])
    assert found.median_error == pytest.approx(0.05)
    assert found.r2 == pytest.approx(1 - (100 + 3600) / (75**2 + 75**2 + 25**2 + 125**2))
    assert judged([(1, 1), (1, 0)]).median_error == math.inf
    said: list[str] = []
    bars = prediction_bars([one for some in RESULTS.values() for one in some], said.append)
    assert [bar.met for bar in bars] == [True, False], "R2 is about 0.8"
    assert "6 operations" in said[0]
    assert prediction_bars([], said.append) == []


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
    assert expected(found, 1.0) == 300
    assert expected(Decision("storm", placement, (), ""), 1.0) == 1.0


def test_the_campaign_has_the_oracle_and_gain() -> None:
    assert {"gain", "stela", "oracle"} <= set(stela.STRATEGIES)
    assert [*stela.by_strategy([("oracle", RESULTS["oracle"][0]), ("gain", RESULTS["gain"][0])])] == ["gain", "oracle"]
