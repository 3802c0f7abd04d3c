"""What bench-stateful reads of a run's JSON, and the bars that follow from it, without Spark."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import stateful_bars
import stateful_instances
import stateful_kills
import stateful_run
import stateful_topology
from live_gaps import Measured
from stateful_bars import BACK, FULL, THERE, THIN, PhasesSeen
from stateful_made_up import MACHINES, given, migration, operation, sample, status_of_a_run, through, told
from stateful_schedule import INSTANCES, LOOK, RATES, TASKS, WHOLE, without_elasticity
from stateful_seen import (
    IN,
    OUT,
    PLACEMENT,
    Change,
    at_ends,
    busy_in,
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

from penstock import PenstockError, Settings
from penstock.cluster.model import Cluster
from penstock.plans.enacting import Status
from penstock.testing import RecordingTopology

# What is read of a run


def test_the_status_is_read_as_it_is(tmp_path: Path) -> None:
    status = json.loads(json.dumps(status_of_a_run(tmp_path)))
    found = seen(status, 7.0)
    assert (found.at, found.detectors, found.instances, found.tweets) == (7.0, 5, 9, 0)
    assert found.busy is None  # nothing was measured
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


def test_changes_are_told_apart_and_their_share_of_the_state_is_worked_out() -> None:
    told = [
        operation(1, {"detector": 5}),
        operation(2, {"detector": -5, "generator": -1}, moves=4),
        operation(3, {}, moves=10),
        operation(4, {"detector": 5}, status=Status.ROLLED_BACK),
    ]
    assert [kind_of(one) for one in told] == [OUT, IN, PLACEMENT, None]
    found = migrations_of(told, {1: 2_000, 2: 2_000}, TASKS)
    assert [(one.kind, one.tasks, one.share) for one in found] == [(OUT, 0, 0.0), (IN, 4, 25.0), (PLACEMENT, 10, 62.5)]
    assert (found[1].gap, found[1].usual_gap, found[1].seconds) == (4.0, 2.5, 2.0)
    assert found[0].phases == {}
    assert found[1].phases == pytest.approx({"pause": 0.1, "save": 0.2, "load": None, "resume": 0.4})
    assert "0.10, 0.20, -, 0.40" in "\n".join(stateful_bars.migration_table(found))


def test_the_other_operators_are_shown_beside_what_moved() -> None:
    told = [operation(1, {"detector": 5}), operation(2, {"detector": -5}, moves=4)]
    found = migrations_of(told, {}, TASKS)
    assert found[0].others == ()
    assert [(one.operator, one.gap, one.usual_gap, one.behind) for one in found[1].others] == [
        ("input", 2.6, 2.5, False),
        ("reporter", 4.5, None, True),
    ]
    lines = stateful_bars.migration_table(found)
    assert "| 2 | input | 2.60 (2.50) | 350.0 | 344.0 |" in lines
    assert "| 2 | reporter, behind the detector | 4.50 | 12.0 | 0.0 |" in lines
    assert not [line for line in lines if line.startswith("| 1 | input")]


def test_where_no_state_moved_no_others_are_shown() -> None:
    lines = stateful_bars.migration_table([migration(OUT, 0)])
    assert len([line for line in lines if line.startswith("| ---")]) == 1


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
    assert followed([5, 10, 20, 10, 0], RATES) == 3, "a run that broke off before the last phase did not follow it"
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
    assert [text for text in told if text.startswith("its log ends with")] == []
    with pytest.raises(RuntimeError), run_of(tmp_path) as again:
        (again.folder / "log").write_text("the last line")
        raise RuntimeError
    assert told[-1] == "its log ends with:\nthe last line\n" + (again.folder / "summary.json").read_text()
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
    assert [text for text in told if text.startswith("operation 1 done in 2.0 s")] == [told[-1]], "it is told once"


def test_how_far_a_run_is_is_told_with_what_it_costs() -> None:
    text = stateful_run.in_words(sample(1.0, busy=0.4, batch=1.25, tweets=1200))
    assert text == "1,200 tweets, 5 detectors busy 0.40 in batches of 1.2 s, latency 8.0 s, 0 rows wait"
    assert "busy unknown" in stateful_run.in_words(sample(1.0))
    samples = [sample(at, busy=0.9 if at < 5 else 0.4) for at in range(10)]
    assert busy_in(samples, (0.0, 10.0)) == 0.4
    assert math.isnan(busy_in([sample(7.0)], (0.0, 10.0)))


# Bars


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
