"""bench-stateful without Spark: the phases, the instances, what is read of a run's JSON, the bars."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import children
import stateful
import stateful_bars
import stateful_counts
import stateful_instances
import stateful_kills
import stateful_moves
import stateful_plots
import stateful_run
import stateful_topology
from live_gaps import Measured
from live_load import Load, Shape, row_numbers
from stateful_bars import BACK, FULL, THERE, THIN, PhasesSeen
from stateful_schedule import INSTANCES, LOOK, RATES, TASKS, WHOLE, Phases, utilisation, without_elasticity
from stateful_seen import (
    IN,
    OUT,
    PLACEMENT,
    Change,
    Migration,
    Seen,
    at_ends,
    changes,
    followed,
    growth,
    growths,
    kind_of,
    machine_use,
    migrations_of,
    reversals,
    seen,
    since_first_tweet,
    state_size,
)

from penstock import PenstockError, Settings, testing
from penstock.api.reads import Reads
from penstock.autoscaler.operations import Operation, Operations
from penstock.autoscaler.policy import Fate
from penstock.autoscaler.proposals import Proposal
from penstock.channels.spark_hash import hash_of_rows, task_of_hashes
from penstock.cluster.model import Cluster, Slot
from penstock.plans.enacting import Interruption, Move, Outcome, Placed, Status
from penstock.plans.plan import MoveTask, Plan, SetInstances
from penstock.strategies.thresholds import InstanceUse, Thresholds, wanted_instances
from penstock.testing import RecordingTopology

MACHINES = [f"10.0.0.{number}" for number in range(1, 6)]
A, B = Slot("a", 0), Slot("b", 0)
#: What was told of how far something is.
told: list[str] = []


def given(folder: Path, phases: Phases = LOOK) -> stateful_topology.Given:
    return stateful_topology.Given(phases.steps, phases.rows, str(folder), str(folder / "out"), 1_000.0, 6.0)


# The phases


def test_time_and_rates_are_divided_and_the_cooldown_fits_into_a_phase() -> None:
    assert WHOLE.seconds == 180
    assert WHOLE.spans[0] == (90, 270)
    assert WHOLE.spans[-1] == (810, WHOLE.total)
    assert WHOLE.steps == [(90, 1.2), (180, 1.2), (180, 3.5), (180, 9.0), (180, 2.5), (180, 1.2)]
    assert pytest.approx(90 * 1.2 + 180 * (1.2 + 3.5 + 9 + 2.5 + 1.2)) == WHOLE.rows
    for phases in (WHOLE, LOOK):
        settings = Settings(**phases.settings(True, "traffic_aware"))  # refused if the thresholds contradict each other
        assert settings.strategy == "threshold"
        cooldown = settings.threshold_period * settings.threshold_cooldown
        assert cooldown == pytest.approx(phases.seconds * 120 / 900)
        seen_after = settings.sample_seconds * settings.window_samples
        assert seen_after + cooldown < phases.seconds / 2
    assert Settings(**WHOLE.settings(False, "fewest_moves")).strategy != "threshold"


def test_a_look_without_elasticity_ends_with_the_first_rate_that_is_too_high() -> None:
    assert without_elasticity(LOOK, is_whole=False).rates == (120, 350)
    assert without_elasticity(WHOLE, is_whole=True) == WHOLE


@pytest.mark.parametrize("overhead", [0.0, 0.1, 0.15])
def test_the_rule_takes_the_papers_way_whatever_micro_batches_cost(overhead: float) -> None:
    """Up to 0.15 of each of five instances."""
    thresholds = Thresholds.of(Settings(**WHOLE.settings(True, "fewest_moves")))
    went, now = [], INSTANCES
    for rate in RATES:
        for _ in range(3):
            share = min(utilisation(rate, now, overhead), 1.0)
            now = wanted_instances([InstanceUse(now, share)], thresholds, 1, TASKS)
        went.append(now)
    assert went == [5, 10, 20, 10, 5]


def test_five_instances_can_do_the_first_rate_and_not_the_second() -> None:
    assert utilisation(120, INSTANCES) < 0.5
    assert utilisation(350, INSTANCES) > 1.08
    assert max(utilisation(350, 10), utilisation(900, 20)) < 0.8


# The topology


def test_tweets_have_as_many_patterns_as_are_counted_on_and_fill_tasks_evenly(tmp_path: Path) -> None:
    from frequent_patterns import patterns_of

    texts = given(tmp_path).tweets(0, 2_000).column("text").to_pylist()
    found = Counter(pattern for text in texts for pattern in patterns_of(text))
    assert found.total() / len(texts) == pytest.approx(stateful_topology.PATTERNS, rel=0.02)
    keys = list(found)
    tasks = task_of_hashes(hash_of_rows(pa.RecordBatch.from_pydict({"pattern": keys}), ["pattern"]), TASKS)
    work: Counter[int] = Counter()
    for key, task in zip(keys, tasks, strict=True):
        work[int(task)] += found[key]
    # The fullest of 20 instances must carry its part of 900 tweets a second.
    assert max(work.values()) / statistics.fmean(work.values()) * utilisation(900, 20) < 0.95


def test_what_a_run_is_told_arrives_in_the_topology(tmp_path: Path) -> None:
    told = replace(given(tmp_path), instances=10)
    read = stateful_topology.Given.read(told.as_text())
    assert read.work == told.work
    definition = stateful_topology.declared(read).definition()
    assert definition.operator("detector").instances == 10
    source = definition.operator("input").spec
    assert source.rows == LOOK.rows
    assert "0x" not in json.dumps(source.describe()), "an address would be another one in the next process"


def test_the_detector_works_for_every_pattern_and_says_what_the_examples_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: list[int] = []
    monkeypatch.setattr(stateful_instances.Work, "spend", lambda self, patterns: spent.append(patterns))
    trial = testing.stateful(stateful_topology.declared(given(tmp_path)), "detector")
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = [{"pattern": "tea", "at": noon + timedelta(seconds=second), "n": 2} for second in range(3)]
    assert trial.rows(rows) == []
    said = trial.pass_to(noon + timedelta(seconds=10))
    assert [(one["change"], one["n"]) for one in said] == [("above", 6)]
    assert sum(spent) == 6


# Instances


def test_tasks_of_one_instance_share_a_seat() -> None:
    assert stateful_instances.dealt_seats(["a/0", "a/0", "a/0", "b/0"], {"a/0": 2, "b/0": 1}) == [
        "a_0-0",
        "a_0-1",
        "a_0-0",
        "b_0-0",
    ]
    assert len(set(stateful_instances.first_seats(20, 5))) == 5


def test_a_seat_gives_a_second_in_a_second_and_what_it_saved_up() -> None:
    free = stateful_instances.free_after(0.0, 100.0, 2.0, burst=10.0)
    assert free == 92.0  # nobody waits: it had ten seconds saved up
    for _ in range(10):
        free = stateful_instances.free_after(free, 100.0, 2.0, burst=10.0)
    assert free == 112.0  # 22 seconds of work, ten of which were saved up


def test_below_its_limit_a_seat_never_makes_anybody_wait_and_above_it_it_does() -> None:
    """Four tasks begin together every 5 s."""

    def waits(work: float) -> list[float]:
        free, found = 0.0, []
        for batch in range(50):
            now = 1_000.0 + 5.0 * batch
            for _ in range(4):
                free = stateful_instances.free_after(free, now, work / 4, burst=10.0)
                found.append(max(work / 4, free - now) - work / 4)
        return found

    assert max(waits(4.9)) == 0.0
    assert waits(5.5)[-1] > 10.0


def test_work_takes_as_long_as_it_is_and_longer_where_a_seat_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    rounds: list[int] = []
    monkeypatch.setattr(stateful_instances.time, "sleep", slept.append)
    monkeypatch.setattr(stateful_instances.time, "time", lambda: 1_000.0)
    monkeypatch.setattr(stateful_instances, "work", rounds.append)
    stateful_instances.write_seats(tmp_path, ["a_0-0"])
    work = stateful_instances.Work(str(tmp_path), 0.5, cpu_share=0.1, rounds_per_cpu_second=1_000.0, burst=1.0)
    work.spend(2)
    work.spend(2)
    work.spend(2)
    assert slept == [1.0, 1.0, 2.0]
    assert rounds == [100, 100, 100]


# What is read of a run


def status_of_a_run(tmp_path: Path) -> dict[str, Any]:
    """The real shape: a recording double in the place of the run."""
    definition = stateful_topology.declared(given(tmp_path)).definition()
    run = RecordingTopology(definition, Cluster.of(MACHINES, 1, 4), Settings())
    operations = Operations(lambda _: None, lambda: False, lambda: "")
    return Reads(run, "lab", operations).status()


def test_the_status_is_read_as_it_is(tmp_path: Path) -> None:
    status = json.loads(json.dumps(status_of_a_run(tmp_path)))
    found = seen(status, 7.0)
    assert (found.at, found.detectors, found.instances, found.tweets) == (7.0, 5, 9, 0)
    assert found.used == {}  # only machines of a lab say it
    seats = stateful_instances.seats_of(status, "detector")
    assert (len(seats), len(set(seats))) == (TASKS, INSTANCES)
    status["machines"][0]["used"] = {"cpu": 0.4}
    assert seen(status, 7.0).used == {MACHINES[0]: 0.4}
    assert stateful_kills.is_settled(status)
    move = stateful_kills.next_move(status, 1)
    assert move["task"] == 7
    [detector] = [one for one in status["operators"] if one["name"] == "detector"]
    assert move["slot"] != detector["tasks"][7]
    status["machines"][0]["slots"][0]["usable"] = False
    assert not stateful_kills.is_settled(status)


def test_the_snapshot_says_how_large_the_state_is(tmp_path: Path) -> None:
    definition = stateful_topology.declared(given(tmp_path)).definition()
    run = RecordingTopology(definition, Cluster.of(MACHINES, 1, 4), Settings())
    snapshot = json.loads(json.dumps(run.snapshot().as_json()))
    assert state_size(snapshot) == 0  # nothing was measured
    for one in snapshot["operators"]:
        one["state"] = {"0": {"rows": 3, "bytes": 100}, "1": {"rows": 3, "bytes": 50}}
    assert state_size(snapshot) == 150
    snapshot["operators"][2]["state"]["1"]["bytes"] = None
    assert state_size(snapshot) == 0


def operation(number: int, added: dict[str, int], moves: int = 0, status: Status = Status.DONE) -> dict[str, Any]:
    """As the control interface tells it."""
    gap = Interruption("detector", 4.0, 2.5)
    moved = tuple(Move("detector", task, A, B, 100, 0.3, gap) for task in range(moves))
    plan = Plan((SetInstances("detector", {A: 1}), *(MoveTask("detector", task, B) for task in range(moves))), "why")
    made = Operation(number, "carry-out", {}, lambda: None, asked_at=10.0, state=Fate.DONE)
    made.began_at, made.ended_at = 11.0, 13.0
    made.proposal = Proposal(plan, ("why",), decision={"outcome": "decision", "added_instances": added})
    made.outcome = Outcome(plan, status, seconds=2.0, placed=Placed(moved, (gap,)))
    return dict(json.loads(json.dumps(made.as_json())))


def test_changes_are_told_apart_and_their_share_of_the_state_is_worked_out() -> None:
    told = [
        operation(1, {"detector": 5}),
        operation(2, {"detector": -5, "generator": -1}, moves=4),
        operation(3, {}, moves=10),
        operation(4, {"detector": 5}, status=Status.ROLLED_BACK),
    ]
    assert [kind_of(one) for one in told] == [OUT, IN, PLACEMENT, None]
    found = migrations_of(told, {1: 2_000, 2: 2_000}, TASKS)
    assert [(one.kind, one.tasks, one.share) for one in found] == [(OUT, 0, 0.0), (IN, 4, 20.0), (PLACEMENT, 10, 50.0)]
    assert (found[1].gap, found[1].usual_gap, found[1].seconds, found[1].phases) == (4.0, 2.5, 2.0, None)


def test_where_penstock_lists_migrations_their_phases_are_taken_from_there() -> None:
    told = [operation(1, {"detector": 5}), operation(2, {"detector": -5}, moves=4)]
    times = {"pause": 0.1, "save": 0.2, "load": 0.3, "resume": 0.4}
    listed = [
        {"operator": "other", "phases": {}, "of_bytes": 1},
        {"operator": "detector", "phases": times, "of_bytes": 1_600},
    ]
    found = migrations_of(told, {1: 2_000, 2: 2_000}, TASKS, listed)
    assert [one.phases for one in found] == [None, times]
    assert [one.share for one in found] == [0.0, 25.0]
    assert "0.10, 0.20, 0.30, 0.40" in "\n".join(stateful_bars.migration_table(found))


def sample(at: float, detectors: int = 5, latency: float | None = 8.0, **more: Any) -> Seen:
    fields: dict[str, Any] = {"tweets": 0, "waiting": 0, "instances": detectors + 4, "used": {}}
    return Seen(at=at, detectors=detectors, latency=latency, **fields | more)


def test_the_first_tweet_was_due_when_the_earliest_look_says_so() -> None:
    samples = [sample(100.0), sample(103.0, tweets=20), sample(104.0, tweets=31), sample(110.0, tweets=60)]
    began, since = since_first_tweet(samples, lambda row: row / 10)
    assert began == pytest.approx(100.9)
    assert since[-1].at == pytest.approx(9.1)


def test_growth_is_that_of_most_pairs() -> None:
    assert growth([(at, 5.0 + 0.1 * at + (30.0 if at == 7 else 0.0)) for at in range(20)]) == pytest.approx(0.1)
    assert growth([(at, 5.0 + (-1) ** at) for at in range(40)]) == pytest.approx(0.0, abs=0.01)
    assert math.isnan(growth([(1.0, 2.0), (2.0, 3.0)]))


def test_growth_counts_in_the_second_half_of_a_phase() -> None:
    samples = [sample(at, latency=at if at < 50 else 50.0) for at in range(100)]
    assert growths(samples, [(0.0, 100.0)]) == [0.0]
    assert math.isnan(growths([replace(one, latency=None) for one in samples], [(0.0, 100.0)])[0])


def test_a_way_back_inside_of_a_phase_is_a_reversal() -> None:
    counts = [5, 10, 20, 20, 10, 5, 10]
    found = changes([sample(at, detectors) for at, detectors in enumerate(counts)])
    assert found == [Change(1, 5, 10), Change(2, 10, 20), Change(4, 20, 10), Change(5, 10, 5), Change(6, 5, 10)]
    assert reversals(found, [(0.0, 3.0), (3.0, 6.0), (6.0, 9.0)]) == 0
    assert reversals(found, [(0.0, 5.0), (5.0, 9.0)]) == 2


def test_instances_follow_the_load_only_where_they_change_its_way() -> None:
    assert followed([5, 10, 20, 10, 5], RATES) == 4
    assert followed([5, 5, 20, 20, 5], RATES) == 2
    assert followed([5, 10, 20, 40, 5], RATES) == 3
    assert at_ends([sample(1.0, 5), sample(4.0, 10)], [(0.0, 3.0), (3.0, 6.0), (6.0, 9.0)]) == [5, 10, 0]


def test_the_use_of_machines_is_their_mean_and_that_of_the_busiest() -> None:
    samples = [
        sample(1.0, used={"a": 0.2, "b": 0.4}),
        sample(2.0, used={"a": 0.8, "b": 0.2}),
        sample(9.0, used={"a": 1}),
    ]
    mean, most = machine_use(samples, (0.0, 5.0))
    assert (mean, most) == (pytest.approx(0.4), pytest.approx(0.6))
    assert math.isnan(machine_use(samples, (20.0, 30.0))[0])


# A run


def run_of(tmp_path: Path, **settings: object) -> stateful_run.PatternsRun:
    return stateful_run.PatternsRun(tmp_path / "run", given(tmp_path / "seats"), settings, told.append)


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run sets the variable for this process, too."""
    monkeypatch.setenv(stateful_run.FOLDER_VARIABLE, "")


@pytest.mark.usefixtures("_own_registry")
def test_the_command_line_finds_the_topology_with_what_the_run_tells_it(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    command = [sys.executable, "-m", "penstock", "show", str(stateful_run.HERE / "stateful_topology.py"), "--json"]
    done = subprocess.run(command, env=run._environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    operators = {one["name"]: one for one in json.loads(done.stdout)["operators"]}
    assert (operators["detector"]["instances"], operators["detector"]["tasks"]) == (INSTANCES, TASKS)


@pytest.mark.usefixtures("_own_registry")
def test_a_run_that_does_not_start_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    with run_of(tmp_path, no_such_setting=1) as run:
        with pytest.raises(RuntimeError, match="no_such_setting"):
            run.start()
        assert run.look() is None
    assert run._process is None
    assert len(json.loads((tmp_path / "seats" / stateful_instances.SEATS).read_text())) == TASKS


class AnsweringClient:
    """Answers as the control interface does."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def get(self, path: str) -> Any:
        found = self.answers[path]
        if isinstance(found, PenstockError):
            raise found
        return found

    def close(self) -> None:
        pass


@pytest.mark.usefixtures("_own_registry")
def test_a_look_deals_seats_and_keeps_what_changes_moved(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    status = status_of_a_run(tmp_path)
    answers = {
        "status": status,
        "operations": {"operations": [operation(1, {"detector": -5}, moves=4)]},
        "migrations": PenstockError("NOT_FOUND", "there is no such address.", "See /openapi.json."),
        "snapshot": {"operators": [{"name": "detector", "state": {"0": {"rows": 1, "bytes": 800}}}]},
    }
    run._client = AnsweringClient(answers)  # type: ignore[assignment]
    for _ in range(6):
        run.look()
    assert len(run.samples) == 6
    assert json.loads((tmp_path / "seats" / stateful_instances.SEATS).read_text()) == stateful_instances.seats_of(
        status, "detector"
    )
    assert [(one.kind, one.tasks) for one in run.migrations()] == [(IN, 4)]
    answers["status"] = PenstockError("UNREACHABLE", "it does not answer.", "See: penstock ps")
    assert run.look() is None


# Bars


def through(phases: Phases, instances: list[int], slopes: list[float]) -> PhasesSeen:
    samples = []
    for (start, stop), count, slope in zip(phases.spans, instances, slopes, strict=True):
        samples += [
            sample(at, count, 8.0 + slope * (at - start), used={"a": 0.2, "b": 0.6})
            for at in range(int(start), int(stop), 2)
        ]
    return PhasesSeen(phases, samples)


def verdicts(bars: list[Any]) -> dict[str, bool]:
    return {bar.name: bar.met for bar in bars}


FIXED = through(WHOLE, [5] * 5, [0.0, 0.12, 0.6, 0.0, 0.0])


def test_a_run_as_in_the_paper_meets_the_bars_of_the_phases() -> None:
    elastic = through(WHOLE, [5, 10, 20, 10, 5], [0.0, -0.1, 0.01, 0.0, 0.0])
    assert all(verdicts(stateful_bars.phase_bars(elastic, FIXED)).values())
    table = "\n".join(stateful_bars.phase_table(elastic, FIXED))
    assert "5, 10, 20, 10, 5 (the paper" in table
    assert "| 40%, 60% |" in table


@pytest.mark.parametrize(
    ("elastic", "fixed", "missed"),
    [
        (through(WHOLE, [5, 10, 20, 10, 5], [0.0, 0.0, 0.3, 0.0, 0.0]), FIXED, "1. with elasticity: latency grows"),
        (through(WHOLE, [5, 10, 20, 10, 10], [0.0] * 5), FIXED, "2. detector's instances at the end"),
        (through(WHOLE, [5, 5, 5, 5, 5], [0.0] * 5), FIXED, "2. phases to whose load"),
        (
            through(WHOLE, [5, 10, 20, 10, 5], [0.0] * 5),
            through(WHOLE, [5] * 5, [0.0, 0.0, 0.6, 0.0, 0.0]),
            "1. without elasticity: at 350/s",
        ),
        (
            replace(
                one := through(WHOLE, [5, 10, 20, 10, 5], [0.0] * 5),
                samples=[two for two in one.samples if two.at < 800],
            ),
            FIXED,
            "1. with elasticity: phases whose latency was not seen",
        ),
    ],
)
def test_what_is_not_as_in_the_paper_misses_a_bar(elastic: PhasesSeen, fixed: PhasesSeen, missed: str) -> None:
    found = verdicts(stateful_bars.phase_bars(elastic, fixed))
    assert [name for name, met in found.items() if not met and name.startswith(missed)]


def test_a_look_has_a_bar_for_the_phases_that_it_ran() -> None:
    few = without_elasticity(LOOK, is_whole=False)
    bars = stateful_bars.phase_bars(through(LOOK, [5, 10, 20, 10, 5], [0.0] * 5), through(few, [5, 5], [0.0, 0.1]))
    assert all(verdicts(bars).values())
    assert [bar.name for bar in bars if "without" in bar.name] == [
        "1. without elasticity: at 350/s latency grows by, s/s"
    ]


def migration(kind: str, moved: int) -> Migration:
    return Migration(kind, moved, TASKS, moved * 100, TASKS * 100, 2.0, 3.0, 1.0)


def test_state_that_a_scale_out_relocates_misses_its_bar() -> None:
    good = [migration(OUT, 0), migration(IN, 4), migration(IN, 0)]
    assert [bar.met for bar in stateful_bars.share_bars(good)] == [True, True]
    assert [bar.met for bar in stateful_bars.share_bars([*good, migration(OUT, 1)])] == [False, True]
    moved = stateful_bars.share_bars([*good, migration(PLACEMENT, 20), migration(PLACEMENT, 10)])
    assert (moved[2].figure, moved[2].met) == (75.0, False)
    assert [bar.met for bar in stateful_bars.share_bars([])] == [False, False]


def gap(action: str, longest: float, usual: float = 1.0) -> Measured:
    return Measured(action, usual, longest, 2.0, 0.0, 10.0, 0.0, 0.0, 2, 0.4)


def test_a_stateful_move_is_held_against_a_stateless_one_in_micro_batches() -> None:
    rounds = [{FULL: [gap(THERE, 2.4), gap(BACK, 1.8)], THIN: [gap(THERE, 1.4), gap(BACK, 1.2)]}]
    more, lost = stateful_bars.move_bars(rounds)
    assert (more.figure, more.met) == (pytest.approx(0.8), True)
    assert (lost.figure, lost.met) == (pytest.approx(1.1), False)
    table = stateful_bars.move_table(rounds)
    assert "| 1 | with state | move there | 1.00 | 2.40 | 2.40 | 0.40 |" in table
    sizes = stateful_bars.size_table([(10.0, "plain", [9_000_000, 11_000_000], [gap("stop and start", 7.0)])])
    assert "| 10 (10.0) | plain | stop and start | 1.00 | 7.00 | 0.40 | 2.0 |" in sizes


# Counts


def test_changes_are_compared_to_the_last_count() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"pattern": name, "at": at, "change": "gone", "n": 3} for name in ("tea", "milk")]
    wanted = stateful_counts.said(rows)
    same = stateful_counts.compared(wanted, wanted)
    assert (same["changes"], same["missing"], same["surplus"], same["kinds"]) == (2, 0, 0, {"gone": 2})
    assert all(bar.met for bar in stateful_bars.count_bars("here", same))
    other = stateful_counts.said([rows[0], rows[0], {**rows[1], "n": 4}])
    found = stateful_counts.compared(other, wanted)
    assert (found["missing"], found["surplus"]) == (1, 2)
    assert [bar.met for bar in stateful_bars.count_bars("here", found)] == [True, False]
    nothing = stateful_counts.compared(Counter(), Counter())
    assert [bar.met for bar in stateful_bars.count_bars("here", nothing)] == [False, True]


def test_what_the_reporter_got_is_read_from_its_files(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"pattern": "tea", "at": at, "change": "gone", "n": 3}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "part-0-0.parquet")
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "part-1-0.parquet")
    assert stateful_counts.reported(tmp_path) == {("tea", at.timestamp(), "gone", 3): 2}


def test_a_kill_after_the_end_of_a_move_does_not_count() -> None:
    assert stateful_kills.was_in_the_middle({"ended_at": None}, 5.0)
    assert stateful_kills.was_in_the_middle({"ended_at": 6.0}, 5.0)
    assert not stateful_kills.was_in_the_middle({"ended_at": 4.0}, 5.0)
    assert len(set(stateful_kills.KINDS)) == 3


# Moves, sizes


def test_the_topology_of_the_moves_has_the_same_rows_with_state_and_without(tmp_path: Path) -> None:
    load = Load(1_000, stateful.MOVE_MB, before=1.0, after=1.0, warm_up=1.0)
    definition = stateful_moves.topology(load, tmp_path).definition()
    assert [definition.operator(name).tasks for name in (FULL, THIN)] == [8, 8]
    batch = pa.record_batch({"key": [1, 65, 3], "text": ["a", "b", "c"]})
    assert stateful_moves.thinned(batch).to_pydict() == {"part": [1, 1, 3]}


def test_longer_texts_fill_the_same_state_with_fewer_keys() -> None:
    short = Load(1_000, 100.0, before=1.0, after=1.0, warm_up=1.0)
    long = replace(short, tasks=4, text=4_000)
    assert short.keys == int(100e6 * 8 / 290)
    assert long.keys == int(100e6 * 4 / 4_050)
    assert (short.cut, long.plain_cut) == ("repartition 8 to 16", "stop, repartition 4 to 8, start")
    texts = Shape(long.keys, long.text)(row_numbers(0, 3)).column("text").to_pylist()
    assert [len(text) for text in texts] == [4_000] * 3


# The whole


def test_a_look_has_one_part_and_names_are_checked() -> None:
    assert stateful.chosen_parts("", 1) == ["phases"]
    assert stateful.chosen_parts("", 3) == list(stateful.PARTS)
    assert stateful.chosen_parts("sizes,moves", 1) == ["moves", "sizes"]
    with pytest.raises(ValueError, match="sises"):
        stateful.chosen_parts("sises", 1)
    assert all(look <= 15 for look, _ in stateful.MINUTES.values())
    assert set(stateful.MINUTES) == set(stateful.MEASURES) == set(stateful.PARTS)


def test_a_part_that_fails_is_a_bar_that_is_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[tuple[str, list[str], list[Any]]] = []

    def fails(bench: object, report: object) -> None:
        raise RuntimeError("the lab burnt down")

    monkeypatch.setattr(stateful, "MEASURES", {"phases": fails})
    monkeypatch.setattr(stateful, "refusal", lambda: "")
    monkeypatch.setattr(stateful, "write_results", lambda name, lines, bars, on: written.append((name, lines, bars)))
    monkeypatch.setattr(stateful.signal, "signal", lambda *_: None)
    assert stateful.main(["--rounds", "1"]) == 1
    [(name, lines, _)] = written
    assert name == "stateful-look"
    assert "Failed: phases: the lab burnt down" in "\n".join(lines)
    assert "BAR parts that failed: 1.00, bar at most 0: missed" in capsys.readouterr().out


def test_the_plots_are_drawn(tmp_path: Path) -> None:
    elastic = through(LOOK, [5, 10, 20, 10, 5], [0.0] * 5)
    fixed = through(without_elasticity(LOOK, is_whole=False), [5, 5], [0.0, 0.1])
    stateful_plots.plot(elastic, fixed, [migration(OUT, 0), migration(IN, 3)], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


# Children


def child(folder: Path, code: str) -> dict[str, Any]:
    path = str(Path(children.__file__).parent)
    return children.answer_of("the child", [sys.executable, "-c", code], folder, told.append, PYTHONPATH=path)


def test_a_child_tells_and_answers(tmp_path: Path) -> None:
    told.clear()
    found = child(tmp_path / "one", "import children\nchildren.tell('half')\nchildren.answer({'n': 3})")
    assert (found, told) == ({"n": 3}, ["half"])


def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        child(tmp_path / "one", "raise SystemExit('no such thing')")


def test_a_child_ends_with_the_process_that_started_it() -> None:
    path = str(Path(children.__file__).parent)
    code = "import children, time\nchildren.end_with_parent()\nchildren.tell('on')\ntime.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": path},
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with process:
        assert process.stdout.readline() == "# on\n"
        process.stdin.close()
        assert process.wait(20) == 128 + 15
