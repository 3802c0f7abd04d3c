"""The soak's bars: what was not measured, not done or not run to its end is missed, and a look has no verdict."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import soak
from results import Bar
from soak_probe import HEAP, SERIES, SHOWN
from soak_report import DONE, HEAP_SECONDS, LEAST_MINUTES, SAMPLE_SECONDS, Measured, bars_of

THREADS = "driver JVM threads"


def an_hour(minutes: float = 60.0) -> Measured:
    """A run in which nothing grows and everything is done."""
    measured = Measured(60 * minutes, outcomes=Counter({DONE: 50, "refused or rolled back": 9}))
    for name in SERIES:
        step = HEAP_SECONDS if name == HEAP else SAMPLE_SECONDS
        for index in range(int(60 * minutes / step)):
            measured.note(index * step, {name: 100.0})
    return measured


def missed(measured: Measured) -> list[Bar]:
    return [bar for bar in bars_of(measured) if not bar.met]


def test_an_hour_in_which_nothing_grows_meets_every_bar() -> None:
    assert missed(an_hour()) == []
    assert sum("growth" in bar.name for bar in bars_of(an_hour())) == sum(kind != SHOWN for kind in SERIES.values())


def test_a_count_that_grows_now_and_then_is_missed_and_its_line_has_the_estimate() -> None:
    measured = an_hour()
    measured.points[THREADS] = [(at, 100.0 + int((at - 600) / 60 / 18)) for at, _ in measured.points[THREADS]]
    [bar] = missed(measured)
    assert bar.name.startswith(f"soak: {THREADS}: sure growth an hour (estimate +3.3")


@pytest.mark.parametrize(("megabytes", "more", "met"), [(1.0, 0.4, True), (1.0, 0.6, False), (100.0, 1.5, True)])
def test_logs_may_grow_by_two_percent_or_half_a_megabyte(megabytes: float, more: float, met: bool) -> None:
    measured = an_hour()
    measured.points["logs, MB"] = [(at, megabytes + more * at / 3600) for at, _ in measured.points["logs, MB"]]
    assert (missed(measured) == []) == met


def test_the_heap_is_read_as_rarely_as_spark_collects_and_has_a_trend() -> None:
    assert HEAP_SECONDS >= 300
    measured = an_hour()
    late = [0.0, 3.1, 0.2, 7.9, 0.1, 5.0, 0.3, 0.1, 4.0, 0.2]
    measured.points[HEAP] = [
        (at + wait, 100 + at / 600) for (at, _), wait in zip(measured.points[HEAP], late, strict=True)
    ]
    assert len(measured.counted(HEAP)) == 8
    [bar] = missed(measured)
    assert bar.name == f"soak: {HEAP}: growth in % an hour"
    assert bar.figure == pytest.approx(5.8, abs=0.2)


@pytest.mark.parametrize("left", [0, 4])
def test_a_series_that_was_not_measured_is_missed_by_name(left: int) -> None:
    measured = an_hour()
    measured.points[HEAP] = measured.points[HEAP][:left]
    [bar] = missed(measured)
    assert HEAP in bar.name
    assert bar.figure == 1
    assert not any(one.name.startswith(f"soak: {HEAP}: growth") for one in bars_of(measured)), "nothing to judge"


def test_most_changes_must_be_done() -> None:
    measured = an_hour()
    measured.outcomes = Counter({DONE: 40, "took longer than a minute": 19})
    assert ["changes that were done" in bar.name for bar in missed(measured)] == [True]
    measured.outcomes = Counter()
    assert ["changes that were done" in bar.name for bar in missed(measured)] == [True], "none was asked for"


def test_a_look_has_no_bar_for_growth() -> None:
    look = an_hour(LEAST_MINUTES - 1)
    look.points[THREADS] = [(at, at) for at, _ in look.points[THREADS]]
    assert missed(look) == []
    assert not any("growth" in bar.name for bar in bars_of(look))


def cut_off(after_minutes: float) -> Measured:
    """An hour was asked for, and the topology ended before it."""
    measured = an_hour(after_minutes)
    measured.seconds = 3600.0
    measured.problem = "it ended with 1"
    measured.points[THREADS] = [(at, at) for at, _ in measured.points[THREADS]]
    return measured


def test_growth_is_judged_by_the_minutes_that_were_measured() -> None:
    look, enough = cut_off(LEAST_MINUTES - 1), cut_off(LEAST_MINUTES)
    assert not any("growth" in bar.name for bar in bars_of(look))
    assert any(f"{THREADS}: sure growth" in bar.name for bar in missed(enough))
    for one in (look, enough):
        assert any("did not run to its end" in bar.name for bar in missed(one))


def test_an_hour_whose_samples_ended_early_meets_no_bar_by_being_a_look() -> None:
    measured = an_hour(LEAST_MINUTES / 2)
    measured.seconds = 3600.0
    [bar] = missed(measured)
    assert bar.name.startswith("soak: series that were not measured")
    assert bar.figure == len(SERIES)


def test_a_soak_that_was_cut_off_says_how_much_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: list[str] = []
    monkeypatch.setattr(soak, "RESULTS", tmp_path)
    monkeypatch.setattr(soak, "plot", lambda *words: None)
    monkeypatch.setattr(soak, "write_results", lambda name, lines, bars, on: names.append(name))
    assert soak.report(cut_off(20), "") == 1
    said = capsys.readouterr().out
    assert "This is a look" in said
    assert "1190 s of the 3600 s that were asked for were measured" in said
    assert names != ["soak"], "the results of a whole soak stay"


@pytest.mark.parametrize("code", [0, 1])
def test_a_topology_that_ends_early_ends_with_bars(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = tmp_path / "penstock"
    ends.write_text(f"#!/bin/sh\necho the reason >&2\nexit {code}\n")
    ends.chmod(0o700)
    monkeypatch.setattr(soak, "PENSTOCK", str(ends))
    monkeypatch.setattr(soak, "RESULTS", tmp_path)
    monkeypatch.setattr(soak.tempfile, "tempdir", str(tmp_path))  # it keeps the logs of a topology that failed
    written: list[list[Bar]] = []
    monkeypatch.setattr(soak, "write_results", lambda name, lines, bars, on: written.append(bars))
    monkeypatch.setattr(sys, "argv", ["soak.py", "--minutes", "60"])
    assert soak.main() == 1
    said = capsys.readouterr()
    assert f"The topology did not run to its end: it ended with {code}." in said.out
    assert "BAR soak: times that the topology did not run to its end: 1.00, bar at most 0: missed" in said.out
    assert "the reason" in said.err
    [kept] = tmp_path.glob("soak-that-failed-*")
    assert "the reason" in "".join(file.read_text() for file in kept.iterdir())
    [bars] = written
    assert f"series that were not measured ({', '.join(SERIES)})" in bars[0].name
