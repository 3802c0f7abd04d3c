"""From what a benchmark has measured to its bars: each one line, with the spread; what was not measured is missed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "speed"))

import faults
import goal_given
import live
import live_bars
import live_stateless
import new_machine
import on_spark
import speed
import speed_more
import standing_batch
import stela
import stela_congested
import unequal_slots
from contents import content_of
from live_gaps import Measured
from live_load import Load
from results import Bar
from settings_given import settings_of
from speed_bars import goal_bar, half_of_the_slowest, latency_bars, machine_bar, slots_bar, throughput_bars
from speed_runs import APART, BYTEWAX, FLINK, FUSED, GOAL, LIMIT, PENSTOCK, PLAIN, WITH_GOAL, WITHOUT_GOAL
from unequal_slots import rates_of

from penstock import Settings, sources
from penstock.cluster.model import Cluster, Placement, Slot
from penstock.plans.enacting import Status
from penstock.testing import RecordingTopology

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
    assert speed.options_of(["--parts", "idle,latency,throughput"]).parts == ["throughput", "latency", "idle"]


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


def test_a_goal_may_cost_a_tenth() -> None:
    bar = goal_bar([100.0, 100.0, 100.0], [95.0, 91.0, 80.0])
    assert str(bar) == "BAR goal: chain with a goal / without: 0.91 (0.80 - 0.95), bar at least 0.9: met"
    assert not goal_bar([100.0], [89.0]).met
    assert not goal_bar([], []).met


def test_runs_with_a_goal_and_without_differ_in_the_goal_alone() -> None:
    with_goal, without = ([*engine.arguments] for engine in (WITH_GOAL, WITHOUT_GOAL))
    where = with_goal.index("--goal") + 1
    assert (with_goal.pop(where), without.pop(where)) == (str(GOAL), "0")
    assert with_goal == without
    given = [word for word in without if "=" in word]
    assert settings_of(given).control == "off", "names and values of settings are known"


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

    def run(seed: int, kills: int, without: object, cluster: str) -> faults.Result:
        asked.append((seed, kills))
        scenario = SimpleNamespace(shape="counted", catalog="sqlite", kinds=["kill"] * kills, cluster=cluster)
        fault = SimpleNamespace(kind="kill", in_change=False, back=1.0)
        campaign = SimpleNamespace(faults=[fault] * kills, left=[], scenario=scenario, outcomes=Counter(), emitted={})
        return faults.Result(seed, 1.0, campaign, "")

    monkeypatch.setattr(faults, "run", run)
    monkeypatch.setattr(faults, "skipped", lambda cluster: {})
    monkeypatch.setattr(faults, "by_kind", lambda found: [])
    monkeypatch.setattr(faults, "write_results", lambda name, lines, bars, on: written.append((name, bars)))
    monkeypatch.setattr(faults.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["faults.py", "--seeds", "7,9", "--faults", "30"])
    assert faults.main() == 0
    assert asked == [(7, 30), (9, 30)]
    [(name, bars)] = written
    assert name == "faults-look"
    assert (bars[0].figure, bars[0].bar) == (60, 60)


# From the command line to the bars, with nothing measured for real


class FakeRuns:
    """Answers as the scripts do."""

    #: Of the chain, with a goal and without.
    chained: ClassVar[dict[str, Any]] = {
        "at_the_sinks": 90_000.0,
        "longest_chain": 6,
        "decided": True,
        "operations": 0,
        "told": ["decision: nothing to change"],
    }
    #: Those that ran, in turn.
    engines: ClassVar[list[str]] = []

    def __init__(self, kept: object = None, settings: object = ()) -> None:
        self.commits: Counter[str] = Counter()
        self.engines.clear()

    def run(self, engine: Any, workload: str, data: Any, warm_up: Any, *more: str) -> tuple[dict[str, Any], int]:
        self.engines.append(engine.name)
        if engine in (WITH_GOAL, WITHOUT_GOAL):
            return dict(self.chained) | {"seconds": 2.0 if engine is WITHOUT_GOAL else 2.1}, 100
        if "--rate" in more:
            return {"p50": 0.02, "p99": 0.09}, 100
        return {"cores": 0.04} if "--idle" in more else {"seconds": 2.0, "start_up": 1.0}, 100

    def script(self, name: str, *more: str) -> dict[str, Any]:
        if name == "standing_batch.py":
            size = {"rows": 10, "bundles": 2, "batches": 50, "batches_per_second": 1000.0, "rows_per_second": 10_000.0}
            return {"sizes": [size | {"driver_ms": 0.5, "jvm_ms": 0.0, "bundles_ms": 1.0}]}
        if name == "unequal_slots.py":
            slots = {"rate_by_slot": {"a": 20.0, "b": 9.0}, "possible_by_slot": {"a": 20.0, "b": 10.0}}
            return slots | {"rate": 29.0, "possible": 30.0}
        return {"phases": {"one": 1.0, "two": 2.0}, "there": 21.0, "first": 0.5}


def no_data(folder: Path, rows: int, files: int, *_: object, **__: object) -> SimpleNamespace:
    return SimpleNamespace(rows=rows, rows_of=lambda *_: rows)


def of_speed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[str, list[str], list[Bar]]:
    """What a run of bench-speed writes: the name, the lines and the bars."""
    written: list[tuple[str, list[str], list[Bar]]] = []
    monkeypatch.setattr(speed, "Runs", FakeRuns)
    for module in (speed, speed_more):
        monkeypatch.setattr(module, "write_data", no_data)
    monkeypatch.setattr(speed, "write_results", lambda name, lines, bars, on: written.append((name, lines, bars)))
    monkeypatch.setattr(sys, "argv", ["speed.py", *arguments])
    assert speed.main() == (0 if all(bar.met for bar in written[0][2]) else 1)
    return written[0]


def test_a_look_at_speed_says_all_bars_of_bundles_that_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    name, lines, bars = of_speed(monkeypatch, "--rounds", "1")
    assert name == "speed-look"
    assert Counter(bar.name[0] for bar in bars) == {"1": 4, "2": 3, "4": 4, "6": 1, "7": 2}
    assert met(bars)["6. two slots, one of half the speed: of what both can do"]
    assert met(bars)["7. ten operators with nothing to do: cores"]
    assert not met(bars)["7. a machine is there: s"]
    assert "| two | 2.00 |" in lines


def test_what_a_batch_costs_is_a_table_without_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    _, lines, bars = of_speed(monkeypatch, "--parts", "batch")
    assert "| 10 | 2 | 1,000 (1,000 - 1,000) | 10,000 (10,000 - 10,000) | 0.50 (0.50 - 0.50)" in "\n".join(lines)
    assert bars == []


def test_the_chain_runs_with_a_goal_and_without_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    name, lines, bars = of_speed(monkeypatch, "--parts", "goal", "--rounds", "2")
    assert name == "speed-look"
    assert FakeRuns.engines == [one.name for one in (WITHOUT_GOAL, WITH_GOAL, WITH_GOAL, WITHOUT_GOAL)]
    [bar] = bars
    assert bar.name == "goal: chain with a goal / without"
    assert bar.figure == pytest.approx(2.0 / 2.1) and bar.met
    assert "| penstock, without a goal | 5,000,000 (5,000,000 - 5,000,000) | 6 | 0 |" in lines


@pytest.mark.parametrize(
    ("became", "why"),
    [
        ({"decided": False}, "in 2 s the controller decided nothing"),
        ({"at_the_sinks": 900.0}, "the goal of 1,000 rows/s was not met: 900.0 rows/s at the sinks"),
        ({"at_the_sinks": None}, "the goal of 1,000 rows/s was not met"),
    ],
)
def test_a_goal_that_was_not_in_force_compares_nothing(
    monkeypatch: pytest.MonkeyPatch, became: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(FakeRuns, "chained", FakeRuns.chained | became)
    _, lines, bars = of_speed(monkeypatch, "--parts", "goal", "--rounds", "1")
    assert met(bars) == {"goal: measured whole": False}
    assert any(why in line for line in lines)
    assert any(line.startswith("| penstock, with a goal | 4,761,905 |") for line in lines), "the rates are shown"


def test_a_part_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("new_machine.py: no executor came up")

    monkeypatch.setattr(FakeRuns, "script", fails)
    _, lines, bars = of_speed(monkeypatch, "--parts", "machine,idle")
    assert [bar.met for bar in bars] == [True, False]
    assert any("no executor came up" in line for line in lines)


def of_live(engine: str) -> dict[str, Any]:
    """What a process of bench-live answers."""
    mine = [live_bars.UP, live_bars.DOWN, live_bars.ADD, live_bars.USE, live_bars.REMOVE]
    actions = {
        live_bars.STATELESS: mine,
        live_bars.PENSTOCK: [*mine, live_bars.THERE, live_bars.BACK, CUT],
        live_bars.PLAIN: [live_bars.ADD, live_bars.DECOMMISSION, PLAIN_CUT],
    }
    sizes = [] if engine == live_bars.STATELESS else [11_000_000]
    return {"actions": [vars(action(name, 0.2)) for name in actions[engine]], "state_bytes": sizes, "rows": 10}


def test_a_process_of_the_live_benchmark_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: dict[str, int] = {}
    written: list[list[Bar]] = []

    def answer(engine: str, load: Load, folder: Path, tell: object) -> dict[str, Any]:
        rates[engine] = load.rate
        if engine == live_bars.PLAIN:
            raise RuntimeError("plain failed (1):\nno executor came up")
        return of_live(engine)

    monkeypatch.setattr(live, "in_a_process", answer)
    monkeypatch.setattr(live.psutil, "cpu_percent", lambda seconds: 0.0)
    monkeypatch.setattr(live, "write_results", lambda name, lines, bars, on: written.append(bars))
    load = Load(1000, 1.0, before=1.0, after=1.0, warm_up=1.0)
    engines = [live_bars.STATELESS, live_bars.PENSTOCK, live_bars.PLAIN]
    assert live.report(load, 1, engines, keep=True) == 1
    assert rates == {live_bars.STATELESS: 2000, live_bars.PENSTOCK: 1000, live_bars.PLAIN: 1000}
    assert [bar.met for bar in written[0]] == [True] * 5 + [False]
    monkeypatch.setattr(live, "in_a_process", lambda engine, load, folder, tell: of_live(engine))
    assert live.report(load, 1, engines, keep=True) == 1
    assert len(written[1]) == 13


def test_congested_is_an_experiment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, list[Bar]]] = []

    def measure(definition: Any, *_: object) -> list[list[stela_congested.Busy]]:
        if definition.name == "linear":
            raise RuntimeError("no executor came up")
        return [[stela_congested.Busy("center", 2, 0.98, 0.97, 0.99)]]

    monkeypatch.setattr(stela_congested, "measure", measure)
    monkeypatch.setattr(stela, "write_results", lambda name, lines, bars, on: written.append((name, bars)))
    monkeypatch.setattr(sys, "argv", ["stela.py", "--rounds", "1", "--experiments", "congested"])
    assert stela.main() == 1
    [(name, bars)] = written
    assert name == "stela-look"
    assert met(bars) == {
        f"3. {name}: a congested instance works, of its time": name != "linear" for name in stela.TOPOLOGIES
    }


# Scripts, as far as they go without Spark


@pytest.mark.parametrize(
    "declared",
    [
        new_machine.topology,
        lambda: unequal_slots.topology(30_000.0),
        lambda: standing_batch.topology_of(standing_batch.Size(rows=10, bundles=2, batches=5)),
        lambda: live_stateless.topology(Load(2000, 1.0, before=1.0, after=1.0, warm_up=1.0)),
    ],
)
def test_the_topologies_of_the_benchmarks_can_be_declared(declared: Callable[[], Any]) -> None:
    assert declared().definition().operators


def chained() -> RecordingTopology:
    made = on_spark.topology_of("chain", sources.rate(1000, content_of("chain")))
    return RecordingTopology(made.definition(), Cluster.of(["a"], slots=2, cores=1), Settings(control="off"))


def test_a_run_with_a_goal_has_a_controller_and_says_what_became_of_it() -> None:
    run = chained()
    with goal_given.steered_to(run, 1000.0):
        found = goal_given.what_became(run, 1000.0)
        assert found["told"] == ["notice: stela is to reach 1,000 rows/s"]
        assert not found["decided"], "nothing was measured yet"
        assert (found["longest_chain"], found["operations"]) == (1, 0)
        run.happened("decision", "nothing to change", "controller", "stela")
        assert goal_given.what_became(run, 1000.0)["decided"]
        json.dumps(found)


@pytest.mark.parametrize("goal", [None, 0.0])
def test_a_run_without_a_goal_has_no_controller(goal: float | None) -> None:
    run = chained()
    with goal_given.steered_to(run, goal):
        found = goal_given.what_became(run, goal)
    assert found.get("told", []) == []
    assert bool(found) == (goal is not None), "only a steered run is told of"


class FakeInternals:
    def __init__(self) -> None:
        self.ids = frozenset({"0", "1"})

    def executor_ids(self) -> frozenset[str]:
        return self.ids


def test_the_phases_of_a_machine_that_comes_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Cluster.of(["127.0.0.4"], slots=1, cores=1).machines[0]
    internals, usable, listeners, plans = FakeInternals(), set[Slot](), list[Callable[[Any], None]](), list[Any]()
    monkeypatch.setattr(new_machine, "POLL", 0.001)

    def carry_out(plan: Any) -> Any:
        plans.append(plan)
        if len(plans) == 1:
            (tmp_path / "worker-127.0.0.4.log").write_text("INFO Worker: Successfully registered with master")
            (tmp_path / "127.0.0.4" / "app-1" / "2").mkdir(parents=True)
            (tmp_path / "127.0.0.4" / "app-1" / "2" / "stderr").touch()
            internals.ids = frozenset({"0", "1", "2"})
            usable.update(machine.slots)
        else:
            for slot in ("127.0.0.2/0", machine.slots[0].name):
                report = SimpleNamespace(operator="same", bundles=[SimpleNamespace(slot=slot)])
                for listener in listeners:
                    listener(report)
        return SimpleNamespace(status=Status.DONE, reason="")

    host = SimpleNamespace(
        streams=SimpleNamespace(internals=internals),
        slots=SimpleNamespace(usable=lambda: frozenset(usable)),
        cluster=SimpleNamespace(slots=machine.slots),
    )
    run = SimpleNamespace(
        host=host, changes=SimpleNamespace(carry_out=carry_out), listen=listeners.append, placement=Placement({}, {})
    )
    provider = SimpleNamespace(work_dir=tmp_path, upcoming=lambda count: (machine,))
    found = new_machine.measure(run, provider)
    phases = found["phases"]
    assert [*phases] == [
        new_machine.REGISTERED,
        new_machine.LAUNCHED,
        new_machine.CAME,
        new_machine.WARM,
        new_machine.THERE,
    ]
    assert sum(phases.values()) == pytest.approx(found["there"])
    assert min(phases.values()) >= 0
    assert found["first"] >= 0
