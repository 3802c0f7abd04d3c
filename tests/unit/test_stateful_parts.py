"""The parts of bench-stateful from begin to end, on runs that are made up: what they ask for, and what they report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import stateful
import stateful_kills
from stateful import Bench, Report
from stateful_bars import FULL, THIN
from stateful_kills import DRIVER, EXECUTOR, WORKER, Kills
from stateful_made_up import told
from stateful_schedule import INSTANCES, LOOK, RATES, retimed, utilisation
from stateful_seen import IN, OUT, Migration, Seen
from stateful_topology import Given
from stela_work import Calibration

SLOTS = ["a/0", "b/0"]
STATUS: dict[str, Any] = {
    "state": "running",
    "as_planned": True,
    "operation": None,
    "machines": [{"name": slot[0], "slots": [{"name": slot, "usable": True}]} for slot in SLOTS],
    "operators": [{"name": "detector", "tasks": ["a/0", "b/0"] * 10}, {"name": "reporter", "rows_in": 5}],
}
WAY = {120: 5, 350: 10, 900: 20, 250: 10}


class Process:
    def __init__(self, run: MadeUpRun, line: str) -> None:
        self._run = run
        self._line = line

    def cmdline(self) -> list[str]:
        return self._line.split(" ")

    def kill(self) -> None:
        self._run.killed.append(self._line)


class MadeUpRun:
    """Has the methods of PatternsRun. It follows the load as the paper's does; without elasticity its latency grows."""

    made: list[MadeUpRun]
    #: Of each of five instances, for micro-batches; and whether a run with elasticity breaks off half way.
    cost = 0.1
    breaks = False

    def __init__(self, folder: Path, given: Given, settings: dict[str, object], say: Callable[[str], None]) -> None:
        self.given = given
        self.is_elastic = settings.get("strategy") == "threshold"
        self.samples: list[Seen] = []
        self.did: list[str] = []
        self.killed: list[str] = []
        self.asked: list[str] = []
        self.ended = False
        #: What an operation says when it is asked for, time after time; at the end always the last one.
        self.operations = [{"began_at": 1.0, "ended_at": None}]
        MadeUpRun.made.append(self)

    def __enter__(self) -> MadeUpRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.did.append("end")

    @property
    def driver(self) -> MadeUpRun:
        return self

    def children(self, recursive: bool) -> list[Process]:
        lines = ["/usr/bin/java CoarseGrainedExecutorBackend", "python -m penstock.worker_daemon", "python guard java"]
        lines += ["/usr/bin/java SparkSubmit --conf spark.python.daemon.module=penstock.engine.executor.worker_daemon"]
        return [Process(self, line) for line in lines]

    def start(self, given: Given | None = None) -> None:
        self.did.append(f"start {(given or self.given).instances}")

    def stop(self, *how: str) -> None:
        self.did.append(f"stop {' '.join(how)}")

    def kill(self) -> None:
        self.killed.append(DRIVER)

    def look(self) -> dict[str, Any]:
        return STATUS

    def watch(self, seconds: float, over: Callable[[], bool] = lambda: False, expected: float | None = None) -> bool:
        if self.given.steps and not self.samples:
            self.samples = list(self._seen())
        if self.is_elastic and self.breaks:
            self.samples = self.samples[: len(self.samples) // 2]
            raise RuntimeError("the lab burnt down")
        return over() or self.is_elastic

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        self.asked.append(path)
        if body is not None:
            return {"id": 7}
        return self.operations.pop(0) if len(self.operations) > 1 else self.operations[0]

    def migrations(self) -> list[Migration]:
        return [Migration(OUT, 0, 20, 0, 2_000, 1.0, 2.0, 1.0), Migration(IN, 2, 20, 200, 2_000, 1.0, 2.0, 1.0)]

    def _seen(self) -> Any:
        at = 0.0
        for seconds, rate in self.given.steps:
            for second in range(0, int(seconds), 2):
                due = self.given.schedule.due(at + second)
                detectors = WAY[round(100 * rate)] if self.is_elastic else 5
                latency = 8.0 + (0.0 if self.is_elastic else 0.2 * second)
                busy = utilisation(100 * rate, detectors) + self.cost * INSTANCES / detectors
                yield Seen(1_000.0 + at + second, due, 0, detectors, detectors + 4, latency, {"a": 0.5}, busy, 1.0)
            at += seconds


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    MadeUpRun.made = []
    monkeypatch.setattr(stateful, "PatternsRun", MadeUpRun)
    monkeypatch.setattr(stateful_kills.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(stateful, "RESULTS", tmp_path)
    counted = {"changes": 9, "missing": 0, "surplus": 0, "kinds": {}, "examples": []}
    monkeypatch.setattr(stateful.children, "answer_of", lambda *words, **more: counted)
    return Bench(tmp_path, Calibration(1_000.0), False, 1, "traffic_aware", "stateful-look", told.append, LOOK)


@pytest.fixture
def unplotted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn is seen in test_stateful_benchmark.py; drawing takes seconds."""
    monkeypatch.setattr(stateful, "plot", lambda elastic, fixed, migrations, file: file.touch())


@pytest.mark.usefixtures("unplotted")
def test_the_phases_run_with_elasticity_and_without(bench: Bench, tmp_path: Path) -> None:
    report = Report()
    stateful.phases(bench, report)
    fixed, elastic = MadeUpRun.made
    assert (elastic.is_elastic, fixed.is_elastic) == (True, False)
    assert elastic.did == ["start 5", "end"]
    assert fixed.did == ["start 5", "stop --at-once", "end"]
    assert {bar.name for bar in report.bars if not bar.met} == set()
    assert {bar.name[0] for bar in report.bars} == {"1", "2", "3", "4"}
    assert (tmp_path / "stateful-look.png").exists()
    assert "5, 10, 20, 10, 5 (the paper" in "\n".join(report.lines)


def test_a_run_that_breaks_off_is_reported_as_far_as_it_came(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MadeUpRun, "breaks", True)
    report = Report()
    with pytest.raises(RuntimeError, match="burnt down"):
        stateful.phases(bench, report)
    met = {bar.name: bar.met for bar in report.bars}
    assert met["1. without elasticity: at 350/s latency grows by, s/s"]
    assert not met["1. with elasticity: phases whose latency was not seen"]
    assert not met["2. detector's instances at the end, at the start 5"]
    assert (tmp_path / "stateful-look.png").exists()


def test_phases_of_which_nothing_was_seen_are_reported_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: MadeUpRun, given: object = None) -> None:
        raise RuntimeError("it did not start")

    monkeypatch.setattr(MadeUpRun, "start", fails)
    report = Report()
    with pytest.raises(RuntimeError, match="did not start"):
        stateful.phases(bench, report)
    assert [bar.name for bar in report.bars if bar.met] == ["2. changes against the direction of a phase's first"]


@pytest.mark.usefixtures("unplotted")
def test_what_micro_batches_cost_is_said_before_anything_depends_on_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.clear()
    stateful.phases(bench, Report())
    assert [text for text in told if "0.10 of it is what micro-batches cost" in text]
    assert not [text for text in told if text.startswith("WARNING")]
    monkeypatch.setattr(MadeUpRun, "cost", 0.35)
    stateful.phases(bench, Report())
    [warning] = [text for text in told if text.startswith("WARNING")]
    assert "LINGER=14 FACTOR=7.5" in warning
    assert retimed(LOOK, 14.0, 7.5).rates == RATES
    with pytest.raises(ValueError, match="smaller --factor"):
        retimed(LOOK, 14.0, None)
    assert retimed(LOOK, None, None) == LOOK


def test_without_migration_it_is_stopped_and_started_with_other_instances(bench: Bench) -> None:
    report = Report()
    stateful.restarts(bench, report)
    [run] = MadeUpRun.made
    changes = [word for count in (10, 20, 10, 5) for word in ("stop --at-once", f"start {count}")]
    assert run.did == ["start 5", *changes, "stop --at-once", "end"]
    assert sum(line.startswith(("| 5 to", "| 10 to", "| 20 to")) for line in report.lines) == 4


def test_moves_and_sizes_are_measured_in_processes_of_their_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float]] = []

    def answer(what: str, load: Any, folder: Path, say: object) -> dict[str, Any]:
        asked.append((what, load.state_mb))
        one = {"action": "move there", "median_gap": 1.0, "longest_gap": 1.5, "took": 2.0, "below": 0.0}
        one |= {"watched": 9.0, "below_before": 0.0, "load": 0.0, "moved": 2, "load_of_slowest": 0.1}
        return {
            "moves": {FULL: [one], THIN: [one]},
            "bytes": [16_000_000],
            "actions": [one],
            "state_bytes": [1_000_000],
        }

    monkeypatch.setattr(stateful.moving, "in_a_process", answer)
    report = Report()
    stateful.moves(bench, report)
    stateful.sizes(bench, report)
    assert asked == [("moves", 16.0), ("penstock", 1.0), ("plain", 1.0), ("penstock", 10.0), ("plain", 10.0)]
    assert [bar.met for bar in report.bars] == [True, True]


def test_ten_kills_of_all_kinds_in_the_middle_of_moves(bench: Bench) -> None:
    report = Report()
    with pytest.raises(RuntimeError, match="not all tweets"):  # a run without a controller never ends here
        stateful.counts(bench, report)
    [run] = MadeUpRun.made
    assert [(bar.figure, bar.met) for bar in report.bars] == [(10, True)], "what was seen is reported all the same"
    assert len(run.killed) == 10
    assert {line.partition(" ")[2] or line for line in run.killed} == {
        "CoarseGrainedExecutorBackend",
        "-m penstock.worker_daemon",
        DRIVER,
    }
    assert run.did.count("start 10") == 1 + run.killed.count(DRIVER)


def test_a_move_that_was_over_before_the_kill_is_tried_again(bench: Bench, tmp_path: Path) -> None:
    run = MadeUpRun(tmp_path, bench.given("x", bench.phases), {}, bench.say)
    under_way, over = {"began_at": 1.0, "ended_at": None}, {"began_at": 1.0, "ended_at": 2.0}
    # The first move is over when it is looked at before the kill; the second one is in the middle.
    run.operations = [under_way, over, under_way, under_way, under_way]
    kills = Kills(run, bench.say)  # type: ignore[arg-type]
    assert kills.all(1) == [EXECUTOR]
    assert len(run.killed) == 1
    assert run.asked.count("move-task") == 2
    assert WORKER in stateful_kills.KINDS
