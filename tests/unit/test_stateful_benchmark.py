"""bench-stateful without Spark: the phases, the topology, instances, counts, and what holds its parts together."""

from __future__ import annotations

import json
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
import stateful_topology
from live_load import Load, Shape, row_numbers
from stateful_bars import FULL, THIN, PhasesSeen
from stateful_made_up import given, migration, through, told
from stateful_schedule import BEARABLE, INSTANCES, LOOK, RATES, TASKS, WHOLE, Phases, utilisation, without_elasticity
from stateful_seen import IN, OUT, at_ends
from stateful_simulated import Simulated

from penstock import Settings, testing
from penstock.channels.spark_hash import hash_of_rows, task_of_hashes
from penstock.strategies.thresholds import InstanceUse, Thresholds, wanted_instances

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


@pytest.mark.parametrize("phases", [LOOK, WHOLE], ids=["look", "whole"])
@pytest.mark.parametrize("cost", [0.02, 0.1, BEARABLE])
def test_in_virtual_time_the_detector_follows_the_load_if_micro_batches_cost_what_is_bearable(
    phases: Phases, cost: float
) -> None:
    elastic = PhasesSeen(phases, Simulated(phases, cost, elastic=True).run())
    few = without_elasticity(phases, is_whole=False)
    fixed = PhasesSeen(few, Simulated(few, cost, elastic=False).run())
    assert [str(bar) for bar in stateful_bars.phase_bars(elastic, fixed) if not bar.met] == []


def test_in_virtual_time_it_does_not_follow_if_micro_batches_cost_far_more() -> None:
    elastic = PhasesSeen(LOOK, Simulated(LOOK, 3 * BEARABLE, elastic=True).run())
    assert at_ends(elastic.samples, LOOK.spans)[-1] > INSTANCES


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
    assert definition.operator("reporter").weight == 0, "what is gone a minute later is no throughput"
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
    assert stateful.page_of(list(stateful.PARTS), True) == "stateful"
    pages = [stateful.page_of([part], False) for part in stateful.PARTS]
    assert (pages[0], pages[2], len(set(pages))) == ("stateful-look", "stateful-moves-look", len(stateful.PARTS))
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


def test_somebody_who_ends_it_gets_a_page_of_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[list[str]] = []

    def ended(bench: object, report: Any) -> None:
        report.lines.append("so far")
        raise SystemExit(143)

    monkeypatch.setattr(stateful, "MEASURES", {"phases": ended})
    monkeypatch.setattr(stateful, "refusal", lambda: "")
    monkeypatch.setattr(stateful, "write_results", lambda name, lines, bars, on: written.append(lines))
    monkeypatch.setattr(stateful.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        stateful.main(["--rounds", "1"])
    assert "so far" in written[0]
    assert "Failed: phases: 143\n" in written[0]


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
