"""From what a benchmark has measured to its bars: each one line, with the spread; what was not measured is missed."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

import faults
import live_bars
import speed
import stela_congested
from live_gaps import Measured
from results import Bar
from speed_bars import half_of_the_slowest, latency_bars, machine_bar, slots_bar, throughput_bars
from speed_runs import APART, BYTEWAX, FLINK, FUSED, LIMIT, PENSTOCK, PLAIN

# speed_runs puts the scripts of bench-speed on the path.
from unequal_slots import rates_of

CUT, PLAIN_CUT = "repartition 8 to 16", "stop, repartition 8 to 16, start"


def met(bars: list[Bar]) -> dict[str, bool]:
    return {bar.name: bar.met for bar in bars}


def test_a_bar_of_several_rounds_shows_its_spread() -> None:
    bar = Bar.of("ratio", [0.9, 1.1, 0.7], 0.8, at_most=False)
    assert str(bar) == "BAR ratio: 0.90 (0.70 - 1.10), bar at least 0.8: met"
    assert not Bar.of("ratio", [0.9, 1.1, 0.7], 0.8, at_most=True).met


@pytest.mark.parametrize("at_most", [True, False])
def test_what_was_not_measured_is_missed(at_most: bool) -> None:
    assert not Bar.of("ratio", [], 0.8, at_most=at_most).met


# bench-speed

RATES = {
    "chain": {PENSTOCK.name: [80.0, 90.0], LIMIT.name: [100.0, 100.0], BYTEWAX.name: [70.0, 70.0]},
    "linear": {PENSTOCK.name: [8.0], PLAIN.name: [2.0], BYTEWAX.name: [11.0], FLINK.name: [0.1], LIMIT.name: [1.0]},
    "word-count": {PENSTOCK.name: [12.0], PLAIN.name: [10.0]},
    "top-n": {PENSTOCK.name: [10.0], PLAIN.name: [10.0]},
}


def test_throughput_is_compared_round_by_round() -> None:
    assert met(throughput_bars(RATES)) == {
        f"2. chain: penstock / {LIMIT.name}": True,
        f"2. chain: penstock / {BYTEWAX.name}": True,
        f"2. linear: penstock / {BYTEWAX.name}": False,
        "4. word-count: penstock / plain": False,
        "4. top-n: penstock / plain": True,
    }
    assert throughput_bars(RATES)[0].spread == (0.8, 0.9)


def test_an_engine_that_failed_misses_its_bar() -> None:
    bars = throughput_bars({"chain": {PENSTOCK.name: [80.0], BYTEWAX.name: []}})
    assert met(bars) == {f"2. chain: penstock / {BYTEWAX.name}": False}


def test_the_slowest_engine_sets_the_rate_of_the_latency() -> None:
    assert half_of_the_slowest(RATES["linear"], min) == 1.0


def answers(*p50: float) -> list[dict[str, float]]:
    return [{"p50": one / 1000, "p99": one / 100} for one in p50]


def test_latency_has_bars_in_ms_and_beside_others() -> None:
    ten = {PENSTOCK.name: answers(20, 24), APART.name: answers(130, 140), BYTEWAX.name: answers(11, 11)}
    counted = {PENSTOCK.name: answers(2000), PLAIN.name: answers(1700)}
    bars = latency_bars({"linear": ten, "word-count": counted, "top-n": counted})
    assert met(bars) == {
        "1. ten chained operators: p50, ms": True,
        "1. ten chained operators: p99, ms": False,
        "1. ten chained operators: p50, penstock / bytewax": True,
        "1. ten operators apart: p50, ms": False,
        "4. word-count: p50, penstock / plain": False,
        "4. top-n: p50, penstock / plain": False,
    }
    assert bars[0].figure == pytest.approx(22)


def test_a_latency_that_could_not_be_measured_is_missed() -> None:
    assert not any(met(latency_bars({"linear": {PENSTOCK.name: [], APART.name: [], BYTEWAX.name: []}})).values())


def test_a_look_has_the_bars_of_the_whole_benchmark() -> None:
    look, whole = (
        {bar.name for bar in throughput_bars({name: {one.name: [1.0] for one in of} for name, of in engines.items()})}
        for engines in (speed.LOOK, speed.WORKLOADS)
    )
    assert look == {name for name in whole if name.startswith(("2", "4"))}
    assert {FUSED, FLINK}.isdisjoint({one for engines in speed.LOOK.values() for one in engines})


def test_latency_needs_the_throughput() -> None:
    assert speed.options_of(["--parts", "latency"]).parts == ["throughput", "latency"]


@pytest.mark.parametrize(
    ("arguments", "is_whole"),
    [([], True), (["--rounds", "1"], False), (["--parts", "idle"], False), (["--set", "shuffle=none"], False)],
)
def test_only_all_of_bench_speed_is_the_whole(arguments: list[str], is_whole: bool) -> None:
    assert speed.options_of(arguments).is_whole is is_whole


def test_a_part_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        speed.options_of(["--parts", "micro-batch"])
    assert "there is no part micro-batch" in capsys.readouterr().err


def test_an_equal_split_to_unequal_slots_misses_its_bar() -> None:
    assert not slots_bar([{"rate": 20_000.0, "possible": 30_000.0}]).met
    assert slots_bar([{"rate": 28_800.0, "possible": 30_000.0}]).met


def batch(finished: float, slot: str, rows: int) -> SimpleNamespace:
    return SimpleNamespace(finished=finished, bundles=[SimpleNamespace(slot=slot, rows_in=rows)])


def test_rates_by_slot_count_whole_batches_only() -> None:
    seen = [batch(1.0, "a", 999), batch(5.0, "a", 999), batch(6.0, "b", 1), batch(7.0, "a", 40), batch(8.0, "b", 6)]
    assert rates_of(seen, ["a", "b"], since=4.0) == {"a": 20.0, "b": 3.0}
    with pytest.raises(RuntimeError, match="slot c"):
        rates_of(seen, ["c"], since=4.0)


def test_a_machine_that_takes_too_long_misses_its_bar() -> None:
    assert machine_bar([{"there": 19.0}]).met
    assert not machine_bar([{"there": 19.0}, {"there": 25.0}, {"there": 26.0}]).met


# bench-live


def action(name: str, longest: float, median: float = 0.03) -> Measured:
    return Measured(name, median, longest, took=1.0, below=0.0, watched=1.0, below_before=0.0, load=0.0)


def test_silence_without_state_is_in_seconds() -> None:
    longest = {live_bars.UP: 0.1, live_bars.DOWN: 0.4, live_bars.ADD: 0.2, live_bars.REMOVE: 0.2, live_bars.USE: 0.9}
    found = {(live_bars.STATELESS, name): [action(name, gap)] for name, gap in longest.items()}
    bars = live_bars.bars_of(found, CUT, PLAIN_CUT)
    assert [bar.met for bar in bars] == [True, False, True, True, True]


def test_a_repartition_may_take_as_long_as_plain() -> None:
    mine = (live_bars.UP, live_bars.DOWN, live_bars.THERE, live_bars.BACK, live_bars.ADD, live_bars.REMOVE)
    found = {(live_bars.PENSTOCK, name): [action(name, 1.2, median=1.0)] for name in mine}
    found[live_bars.PENSTOCK, live_bars.USE] = [action(live_bars.USE, 2.5, median=1.0)]
    found[live_bars.PENSTOCK, CUT] = [action(CUT, 15.0), action(CUT, 15.0)]
    found[live_bars.PLAIN, PLAIN_CUT] = [action(PLAIN_CUT, 10.0), action(PLAIN_CUT, 12.0)]
    found[live_bars.PLAIN, live_bars.DECOMMISSION] = [action(live_bars.DECOMMISSION, 8.0)]
    bars = {bar.name: bar for bar in live_bars.bars_of(found, CUT, PLAIN_CUT)}
    cut = bars[f"5. {CUT}: longest gap, penstock / plain"]
    assert not cut.met
    assert cut.spread == pytest.approx((1.25, 1.5))
    assert not bars["5. with state, first work of a new machine: longest - median gap, s"].met
    assert bars["removal: longest gap of plain decommission / Penstock's"].met


# bench-stela


def operator(instances: int, share: float | None, *slots: float | None) -> SimpleNamespace:
    by_slot = {f"slot {index}": SimpleNamespace(instances=1, utilisation=one) for index, one in enumerate(slots)}
    return SimpleNamespace(instances=instances, utilisation=share, slots=by_slot)


def test_a_topology_is_as_busy_as_its_least_busy_congested_operator() -> None:
    operators = {"a": operator(2, 0.98, 0.97, 0.99), "b": operator(2, 0.9, 0.85, 0.95), "c": operator(1, None, None)}
    busy = stela_congested.busy_of(SimpleNamespace(operators=operators), ["a", "b", "c"])
    assert [(one.operator, one.least, one.most) for one in busy] == [("a", 0.97, 0.99), ("b", 0.85, 0.95)]
    assert stela_congested.bar_of("star", [busy[:1]]).met
    assert not stela_congested.bar_of("star", [busy]).met


def test_a_topology_without_congestion_shows_nothing() -> None:
    said: list[str] = []
    [bar] = stela_congested.report({"star": [[]]}, said.append)
    assert not bar.met
    assert "| star | none | | | |" in said


# make faults KILLS=30 SEEDS=7,9


def test_so_many_kills_over_these_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    written: list[tuple[str, list[Bar]]] = []

    def run(seed: int, kills: int, without: object) -> faults.Result:
        asked.append((seed, kills))
        scenario = SimpleNamespace(shape="counted", catalog="sqlite", kinds=["kill"] * kills)
        fault = SimpleNamespace(kind="kill", in_change=False, back=1.0)
        campaign = SimpleNamespace(faults=[fault] * kills, left=[], scenario=scenario, outcomes=Counter(), emitted={})
        return faults.Result(seed, 1.0, campaign, "")

    monkeypatch.setattr(faults, "run", run)
    monkeypatch.setattr(faults, "skipped", dict)
    monkeypatch.setattr(faults, "by_kind", lambda found: [])
    monkeypatch.setattr(faults, "write_results", lambda name, lines, bars, on: written.append((name, bars)))
    monkeypatch.setattr(faults.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["faults.py", "--seeds", "7,9", "--faults", "30"])
    assert faults.main() == 0
    assert asked == [(7, 30), (9, 30)]
    [(name, bars)] = written
    assert name == "faults-look"
    assert (bars[0].figure, bars[0].bar) == (60, 60)
